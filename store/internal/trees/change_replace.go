package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// InsertKeyed is hot.InsertWithKeys. A task that has not begun gets the context of a submit that
// replaces it, in the transaction that has locked its key. So another submit comes before or after,
// and a lease has the old context or the new one: after a lease, a new task has the new context.
func (s *Trees) InsertKeyed(
	ctx context.Context, t *config.Type, items []*hot.Insertion, wait hot.KeyWait,
) (held []*hot.Insertion, err error) {
	var r *replacements
	held, err = hot.InsertWithKeys(ctx, s.hot, t, items, wait,
		func(ctx context.Context, tx pgx.Tx, t *config.Type, items []*hot.Insertion,
			holders map[string]hot.Holder) error {
			r = &replacements{tx: tx, now: s.core.Clock.Now(), holders: holders}
			return r.replace(ctx, t, items)
		})
	if err == nil && r != nil {
		s.core.Wakeups.Announce(t.Key(), r.tokens.Earliest)
		for _, id := range r.replaced {
			s.core.Watchers.Tell(t.Key(), id)
		}
	}
	return held, err
}

// replacements are the contexts that one transaction replaces.
type replacements struct {
	tx      pgx.Tx
	t       *config.Type
	now     time.Time
	holders map[string]hot.Holder

	tokens   records.Tokens
	replaced []int64 // the numbers of the tasks
}

// replaceLooks is how often the token row of a task is looked for that is neither leased nor final:
// it has just moved.
const replaceLooks = 3

// replace is a hot.ReplaceFunc.
func (r *replacements) replace(
	ctx context.Context, t *config.Type, items []*hot.Insertion,
) (err error) {
	if r.t, err = config.RollsNow(ctx, r.tx, t); err != nil {
		return err
	}
	byID := make(map[int64]*hot.Insertion, len(items))
	ids := make([]int64, 0, len(items))
	for _, item := range items {
		id := r.holders[item.Key.Name].ID
		byID[id] = item
		ids = append(ids, id)
	}
	b := &pgx.Batch{}
	for position, ids := range config.ByPosition(ids) {
		if !r.t.Has(position) { // they were dropped
			continue
		}
		if err := r.replaceInRoll(ctx, b, ids, byID); err != nil {
			return err
		}
	}
	if len(r.replaced) == 0 {
		return nil
	}
	r.tokens.Queue(b, r.t)
	return r.tx.SendBatch(ctx, b).Close()
}

// replaceInRoll replaces the contexts of tasks of one roll. It adds what it writes to a batch, but
// for the new token rows.
func (r *replacements) replaceInRoll(
	ctx context.Context, b *pgx.Batch, ids []int64, byID map[int64]*hot.Insertion,
) error {
	resting, err := r.lock(ctx, ids)
	if err != nil {
		return err
	}
	states, err := r.readStates(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if how := byID[id].Key.Replace; states[id].known {
			byID[id].Key.Refused = states[id].refusal(how, asyncflow.TaskID{Type: r.t.Name,
				Number: id})
		}
	}
	var changes []Change
	for _, c := range resting {
		item := byID[c.ID.Number]
		state := states[c.ID.Number]
		c.Options = state.options
		p := item.Key.Replace.Patch(item.Context, c.Options.Lifetime, state.created, r.now)
		if item.Key.Refused != nil || !state.accepts(r.t, c, len(item.Context)) ||
			p.Lapses(r.t.TaskType, c.Lease, r.now) {
			continue
		}
		changes = append(changes, r.change(item, c, p, state))
		r.replaced = append(r.replaced, c.ID.Number)
	}
	if len(changes) == 0 {
		return nil
	}
	queueTakes(b, r.t, changes)
	QueueChanges(b, r.t, changes, &r.tokens, r.now)
	return nil
}

// change returns the change by which an item replaces the context of a task, and notes how the task
// stands after it.
func (r *replacements) change(
	item *hot.Insertion, c hot.Candidate, p asyncflow.Patch, state replaceState,
) Change {
	ch, _ := ChangeOf(r.t, c, p, state.at, r.now)
	item.Key.Replaced = &hot.Replaced{ID: c.ID, Stage: c.Stage,
		Status: ch.verdict.Status(r.now), OrderTime: ch.verdict.OrderTime.UTC(),
		CreatedAt: state.created.UTC()}
	return ch
}

// lock locks the token rows of tasks of one roll that are in `wait` or `ready`. It looks again for
// tasks that are neither leased nor final.
func (r *replacements) lock(
	ctx context.Context, ids []int64,
) (resting []hot.Candidate, err error) {
	for range replaceLooks {
		more, err := lockResting(ctx, r.tx, r.t, ids, false)
		if err != nil {
			return nil, err
		}
		resting = append(resting, more...)
		ids = records.Without(ids, restingIDs(more))
		if len(ids) == 0 {
			return resting, nil
		}
		rows, _ := r.tx.Query(ctx, r.t.SQL(rollOf(ids), MovingSQL), ids, r.t.Number())
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(ids) == 0 {
			return resting, err
		}
	}
	return resting, nil
}

// MovingSQL returns the tasks with token rows that were just moved: they are neither leased, nor
// final, nor do they wait for what a replaced task can't wait for. For its form see
// records.TakeAnyWaitSQL: as EXISTS, Postgres would read all rows of the type for each id.
const MovingSQL = `
SELECT u.id FROM (SELECT $2::int AS type, id FROM unnest($1::bigint[]) AS id OFFSET 0) u
WHERE (SELECT true FROM {lease} k WHERE k.type = ANY (ARRAY[u.type])
    AND k.id BETWEEN u.id AND u.id) IS NULL
  AND (SELECT true FROM {wait} k WHERE k.type = ANY (ARRAY[u.type])
    AND k.id BETWEEN u.id AND u.id AND k.reason IN ('signal', 'children')) IS NULL
  AND NOT EXISTS (SELECT FROM (SELECT final FROM {journal} j WHERE j.type = $2 AND j.id = u.id
    ORDER BY j.seq DESC LIMIT 1) j WHERE j.final IS NOT NULL)`

// replaceState is what decides whether the context of a task can be replaced.
type replaceState struct {
	known   bool // the task is there
	created time.Time
	at      time.Time // since when its token row has had its place
	options asyncflow.Options
	rows    int // of its journal, up to one more than may be
	edits   int // contexts that it was given since its submit
	bytes   int // of these
	begun   bool
}

// ReplaceStatesSQL reads the states of tasks of one roll, and no more than $3 rows of a journal.
const ReplaceStatesSQL = `
SELECT t.id, t.created_at, coalesce(j.at, t.created_at), coalesce({options}, '{}'), j.n, j.edits,
  j.bytes, j.begun
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id
  ORDER BY id LIMIT 1) t, LATERAL (
  SELECT max(at) AS at, count(*) AS n, count(output) AS edits,
    coalesce(sum(octet_length(output)), 0) AS bytes,
    coalesce(bool_or(outcome NOT IN ('changed', 'dependencies', 'released')), false) AS begun
  FROM (SELECT at, outcome, output FROM {journal} WHERE type = t.type AND id = t.id
    ORDER BY seq LIMIT $3) j) j`

// readStates reads the states of tasks of one roll. The states of resting tasks can't change, as
// their token rows are locked.
func (r *replacements) readStates(
	ctx context.Context, ids []int64,
) (map[int64]replaceState, error) {
	rows, _ := r.tx.Query(ctx, r.t.SQL(rollOf(ids), ReplaceStatesSQL), ids, r.t.Number(),
		2*asyncflow.MaxEdits+1)
	all := make(map[int64]replaceState, len(ids))
	var id int64
	var s replaceState
	_, err := pgx.ForEachRow(rows, []any{&id, &s.created, &s.at, &s.options, &s.rows, &s.edits,
		&s.bytes, &s.begun}, func() error {
		s.known = true
		all[id] = s
		s = replaceState{}
		return nil
	})
	return all, err
}

// rollOf returns the roll of tasks of one roll.
func rollOf(ids []int64) int { return asyncflow.TaskID{Number: ids[0]}.Position() }

// refusal returns why a submit may not replace the task, nor take its key, or nil.
func (s replaceState) refusal(how *hot.Replace, id asyncflow.TaskID) error {
	if s.options.Replaceable || s.options.Erased != nil || how.Operates {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeKeyReused, Fields: []asyncflow.FieldError{
		{Field: "key", Message: "stands for task " + id.String() + ", which was not submitted " +
			"with on_conflict replace: to replace it takes the scope operate"}}}
}

// accepts reports whether a task has not begun, and may keep one more context of some bytes.
func (s replaceState) accepts(t *config.Type, c hot.Candidate, bytes int) bool {
	first := c.Stage == t.Stages[0].Name && c.Attempt == 1 && !s.begun
	own := s.options.Child == nil && s.options.ContextFrom == ""
	room := s.edits < asyncflow.MaxEdits && s.bytes+bytes <= asyncflow.MaxReplacedBytes
	return first && own && room && s.rows <= 2*asyncflow.MaxEdits
}
