package tasks

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// walk goes through the tasks that a filter may find, newest first or, in reverse, oldest first, in
// windows. Each window is of one range of a roll.
type walk struct {
	t       *config.Type
	family  trees.Family
	reverse bool
	since   time.Time    // of the filter
	until   time.Time    // of the filter; zero: none
	idle    map[int]bool // positions of rolls where nothing ended in time
	oldest  int64        // the least number of all
	newest  int64        // behind the greatest number of all
	few     bool         // it is of one parent or key
	sought  int64        // the least number of the range that was last begun; see advance
	// The next window holds the last candidates before before, from least on; in reverse, the first
	// ones.
	least, before int64
}

// walkOf returns a walk through the tasks that a filter with criteria may find.
func (s *lists) walkOf(
	ctx context.Context, t *config.Type, f Filter, c criteria,
) (*walk, error) {
	w := &walk{t: t, reverse: f.Reverse, since: f.Since, until: f.Until, idle: c.idle,
		few: f.Key != "" || f.Parent.Type != "", sought: -1,
		oldest: asyncflow.NewTaskID(t.Name, t.First, 0).Number,
		newest: asyncflow.NewTaskID(t.Name, t.End+1, 0).Number}
	switch {
	case f.After > 0 && f.Reverse:
		w.oldest = max(w.oldest, f.After+1)
	case f.After > 0:
		w.newest = min(w.newest, f.After)
	}
	if f.Key != "" {
		id, err := holderOf(ctx, s.core.DB(t.Tenant), t, f.Key)
		if err != nil {
			return nil, err
		}
		w.oldest = max(w.oldest, id)
		w.newest = min(w.newest, id+1) // none, if there is no such task
	}
	w.least = w.oldest
	w.before = w.newest
	var err error
	w.family, err = trees.FamilyOf(ctx, s.trees, t, f.Parent, f.Latest)
	return w, err
}

// empty reports whether no numbers are in the window.
func (w *walk) empty() bool { return w.least >= w.before }

// next goes to the next window; false: there is none.
func (w *walk) next() bool {
	if w.reverse {
		return w.nextUp()
	}
	for w.before > w.oldest {
		if w.before, w.least = w.family.Before(w.before); w.before <= w.oldest {
			return false
		}
		if w.reads(w.before - 1) {
			w.least = max(w.least, rangeOf(w.t, w.before), w.oldest)
			return true
		}
		w.before = rollOf(w.t, w.before) // nothing there, or a gap between two table sets
	}
	return false
}

// nextUp is next of a reverse walk.
func (w *walk) nextUp() bool {
	for w.least < w.newest {
		if w.least, w.before = w.family.From(w.least); w.least >= w.newest {
			return false
		}
		if w.reads(w.least) {
			w.before = min(w.before, rangeEnd(w.t, w.least), w.newest)
			return true
		}
		w.least = rollEnd(w.t, w.least)
	}
	return false
}

// reads reports whether there may be tasks that the walk finds in the roll of a number.
func (w *walk) reads(number int64) bool {
	position := asyncflow.TaskID{Number: number}.Position()
	return w.t.Has(position) && !w.idle[position]
}

// passed returns the number behind which the next window begins, as Filter.After.
func (w *walk) passed() int64 {
	if w.reverse {
		return w.least - 1
	}
	return w.before
}

// pass goes on after a window.
func (w *walk) pass(v view) {
	if w.reverse {
		w.passUp(v)
		return
	}
	// Later ones are older still. Without a time, the task is gone that is in the table search.
	if !v.created.IsZero() && v.created.Before(w.since.Add(-sinceSlack)) {
		first := rangeOf(w.t, w.before)
		if first == rollOf(w.t, w.before) {
			w.before = 0
			return
		}
		v.last = first
	}
	w.before = v.last
}

// passUp is pass of a reverse walk: later ones are newer still.
func (w *walk) passUp(v view) {
	if !v.newest.IsZero() && !w.until.IsZero() && v.newest.After(w.until.Add(sinceSlack)) {
		v.last = rangeEnd(w.t, w.least)
		if v.last < rollEnd(w.t, w.least) { // its tasks by SQL may be older, no later roll
			w.newest = min(w.newest, rollEnd(w.t, w.least))
		}
	}
	w.least = v.last
}

// seekUpSQL returns a number of the type $1 from $2 to $3 before which all tasks were submitted
// before $4: numbers are in the order of time, but for sinceSlack. It halves the numbers that are
// left, at most 40 times, and reads a task by its primary key for each half.
const seekUpSQL = `
WITH RECURSIVE half AS (
  SELECT $2::bigint AS low, $3::bigint AS high
  UNION ALL
  SELECT CASE WHEN f.older THEN f.id + 1 ELSE h.low END,
    CASE WHEN f.older THEN h.high ELSE h.low + (h.high - h.low) / 2 END
  FROM half h LEFT JOIN LATERAL (SELECT t.id, t.created_at < $4 AS older FROM {task} t
    WHERE t.type = $1 AND t.id >= h.low + (h.high - h.low) / 2 AND t.id < h.high
    ORDER BY t.id LIMIT 1) f ON true
  WHERE h.low < h.high)
SELECT max(low) FROM half`

// seekDownSQL is seekUpSQL for the other direction: a number from which on all tasks were submitted
// after $4.
const seekDownSQL = `
WITH RECURSIVE half AS (
  SELECT $2::bigint AS low, $3::bigint AS high
  UNION ALL
  SELECT CASE WHEN f.newer THEN h.low ELSE h.low + (h.high - h.low + 1) / 2 END,
    CASE WHEN f.newer THEN f.id ELSE h.high END
  FROM half h LEFT JOIN LATERAL (SELECT t.id, t.created_at > $4 AS newer FROM {task} t
    WHERE t.type = $1 AND t.id >= h.low AND t.id < h.low + (h.high - h.low + 1) / 2
    ORDER BY t.id DESC LIMIT 1) f ON true
  WHERE h.low < h.high)
SELECT min(high) FROM half`

// advance goes to the next window of a walk; false: there is none. Tasks at the beginning of a
// range that are too old for the filter, or too new, are passed over without reading them. Then the
// window may be empty, and counts all the same, as it cost a look.
func (s *lists) advance(ctx context.Context, w *walk) (bool, error) {
	if !w.next() {
		return false, nil
	}
	if !w.begins(w.reverse) {
		return true, nil
	}
	if w.reverse {
		return true, s.seek(ctx, w, seekUpSQL, w.since.Add(-sinceSlack))
	}
	return true, s.seek(ctx, w, seekDownSQL, w.until.Add(sinceSlack))
}

// seek moves the near end of a window to where tasks of the right time may be in its range.
func (s *lists) seek(ctx context.Context, w *walk, sql string, at time.Time) error {
	position := asyncflow.TaskID{Number: w.before - 1}.Position()
	number := &w.before
	if w.reverse {
		number = &w.least
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	postgres.QueueSettings(b, postgres.HotSettings) // it is planned like the hot statements
	b.Queue(w.t.SQL(position, sql), w.t.Number(), w.least, w.before, at).
		QueryRow(func(row pgx.Row) error { return row.Scan(number) })
	b.Queue("COMMIT")
	return postgres.Wrap(s.core.DB(w.t.Tenant).Send(ctx, b), "seek(%q, %d)", w.t.Name, position)
}

// begins reports whether a window is the first one of its range, and the filter sets a time that
// its first tasks may not meet. The tasks of one parent, and the holder of a key, are few.
func (w *walk) begins(up bool) bool {
	from := w.until
	if up {
		from = w.since
	}
	first := rangeOf(w.t, w.before)
	if w.few || from.IsZero() || w.sought == first {
		return false
	}
	w.sought = first
	return true
}

// rollOf returns the least number of the roll of a window before a number.
func rollOf(t *config.Type, before int64) int64 {
	return asyncflow.NewTaskID(t.Name, asyncflow.TaskID{Number: before - 1}.Position(), 0).Number
}

// rangeOf returns the least number of the range of a window before a number. There are two ranges
// in each roll: tasks that were submitted by SQL get greater numbers than all other tasks.
func rangeOf(t *config.Type, before int64) int64 {
	bySQL := rollOf(t, before) + asyncflow.FirstBySQL
	if before > bySQL {
		return bySQL
	}
	return rollOf(t, before)
}

// rollEnd returns the least number of the roll after that of a number.
func rollEnd(t *config.Type, number int64) int64 {
	return asyncflow.NewTaskID(t.Name, asyncflow.TaskID{Number: number}.Position()+1, 0).Number
}

// rangeEnd returns the number behind the range of a number.
func rangeEnd(t *config.Type, number int64) int64 {
	if bySQL := rollOf(t, number+1) + asyncflow.FirstBySQL; number < bySQL {
		return bySQL
	}
	return rollEnd(t, number)
}
