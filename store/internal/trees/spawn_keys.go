package trees

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// A transaction that submits by SQL may hold a key for long. A task to start with that key goes to
// the end of its list, so that the other tasks don't wait for it. The list stays one of which the
// first tasks are made: a node that knows nothing of this reads it as any other.

// lockedMost is the most locked keys that a FollowUp finds: each takes a millisecond.
const lockedMost = 100

// claimKeys takes the idempotency keys of new tasks that are free, and returns the task to which
// each key belongs then. locked has the keys that it didn't take: true if another transaction locks
// them, false if it didn't look at them.
func (f startFollowUp) claimKeys(
	t *config.Type, items []*hot.Insertion,
) (holders map[string]hot.Holder, locked map[string]bool, err error) {
	keyed := slices.DeleteFunc(slices.Clone(items), func(item *hot.Insertion) bool {
		return item.Key == nil
	})
	if len(keyed) == 0 {
		return nil, nil, nil
	}
	slices.SortStableFunc(keyed, func(a, b *hot.Insertion) int {
		return cmp.Compare(a.Key.Name, b.Key.Name)
	})
	err = pgx.BeginFunc(f.ctx, f.tx, func(tx pgx.Tx) (err error) { // a savepoint
		holders, _, err = hot.ClaimKeys(f.ctx, tx, t, keyed, f.now, hot.KeysTogether)
		return err
	})
	if hot.IsHeld(err) {
		holders, locked, err = hot.ClaimKeysApart(f.ctx, f.tx, t, keyed, f.now,
			max(0, lockedMost-f.locked))
	}
	if err != nil {
		return nil, nil, err
	}
	for _, seen := range locked {
		if seen {
			f.locked++
		}
	}
	_, err = f.tx.Exec(f.ctx, `SET LOCAL lock_timeout = '`+followPatience+`'`)
	return holders, locked, err
}

// waitsFor notes a task that can't be made yet if its key is one of some that were not taken, and
// reports whether it is.
func (s startedTask) waitsFor(locked map[string]bool, key string) bool {
	seen, waits := locked[key]
	if !waits {
		return false
	}
	if s.waits == nil {
		s.waits = map[int]bool{}
	}
	s.waits[s.at] = seen
	return true
}

// madeNow returns the tasks that were made in this transaction.
func (s *started) madeNow() (types []int32, ids []int64) {
	if len(s.waits) == 0 {
		return s.types, s.ids
	}
	for i, id := range s.ids {
		if _, waits := s.waits[i]; !waits {
			types = append(types, s.types[i])
			ids = append(ids, id)
		}
	}
	return types, ids
}

// left returns the indexes of the tasks that are left to a later transaction, in the order in which
// they are to be made. Those that wait for a key come last. Later ones with the same key stay
// behind them: the key is for the first one.
func (s *started) left() []int {
	type key struct{ taskType, name string }
	waiting := map[key]bool{}
	for i := range s.waits {
		waiting[key{s.tasks[i].Type, s.tasks[i].Key}] = true
	}
	var next, last []int
	for i, task := range s.tasks {
		_, waits := s.waits[i]
		switch {
		case i < len(s.ids) && !waits: // it was made
		case waits || task.Key != "" && waiting[key{task.Type, task.Key}]:
			last = append(last, i)
		default:
			next = append(next, i)
		}
	}
	return append(next, last...)
}

// rests reports whether what is left of the list is to be tried after a pause: nothing of it can be
// made until a key is free, as far as is known. made is how many were made in this transaction.
func (s *started) rests(made int) bool {
	if len(s.waits) == 0 {
		return false
	}
	if made == 0 {
		return true
	}
	for _, seen := range s.waits {
		if !seen {
			return false
		}
	}
	return len(s.waits) == len(s.tasks)-made
}

// reordered returns the text of the list in another order: the tasks that are made, and what is
// left. nil: it has that order.
func (s *started) reordered(left []int) (*string, error) {
	made := len(s.tasks) - len(left)
	same := true
	for n, i := range left {
		same = same && i == made+n
	}
	if same {
		return nil, nil
	}
	var all []json.RawMessage // with what only a later version knows
	if err := json.Unmarshal([]byte(s.text), &all); err != nil {
		return nil, err
	}
	var b strings.Builder
	b.Grow(len(s.text))
	b.WriteByte('[')
	add := func(task json.RawMessage) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(task)
	}
	for _, task := range all[:s.made] {
		add(task)
	}
	for i := range s.ids {
		if _, waits := s.waits[i]; !waits {
			add(all[s.made+i])
		}
	}
	for _, i := range left {
		add(all[s.made+i])
	}
	b.WriteByte(']')
	text := b.String()
	return &text, nil
}
