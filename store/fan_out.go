package store

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// fanOut is a row of fan_outs: the children of a task in one stage.
type fanOut struct {
	fanOutKey
	waits   int16 // seq of the task's row in wait
	stage   string
	rule    asyncflow.FanOut
	count   int
	spawned int     // children that are made, from the first one on
	firsts  []int64 // the ids of the children are in runs, which begin with these,
	starts  []int32 // at these indexes
	ended   children
	again   *int // the index at which a redrive goes on; nil: there is none
	stopped bool // no child is made any more, and the others are cancelled
	closed  bool // the task no longer waits for children

	tally *asyncflow.Tally // of votes; nil: it was not read, see readTallies

	pausedAt    *time.Time // since when no child begins; nil: they do
	pauseReason string
}

const fanOutColumns = `SELECT type, id, seq, waits, stage, rule, count, spawned, firsts, starts,
	succeeded, failed, cancelled, again, stopped, closed, paused_at, coalesce(pause_reason, '')
	FROM {fan_outs} `

// columns returns what fanOutColumns are scanned into.
func (o *fanOut) columns() []any {
	return []any{&o.number, &o.id, &o.seq, &o.waits, &o.stage, &o.rule, &o.count, &o.spawned,
		&o.firsts, &o.starts, &o.ended.succeeded, &o.ended.failed, &o.ended.cancelled, &o.again,
		&o.stopped, &o.closed, &o.pausedAt, &o.pauseReason}
}

// latestFanOut returns the latest fan-out of a task, or one of a seq unless that is 0; nil: there
// is none.
func latestFanOut(
	ctx context.Context, db querier, t *Type, id int64, seq int, lock string,
) (*fanOut, error) {
	o := &fanOut{}
	err := db.QueryRow(ctx, t.at(0, fanOutColumns+`
		WHERE type = $1 AND id = $2 AND ($3::int = 0 OR seq = $3::int)
		ORDER BY seq DESC LIMIT 1 `+lock), t.number, id, seq).Scan(o.columns()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return o, err
}

// saveFanOut writes what may have changed.
func saveFanOut(ctx context.Context, tx pgx.Tx, t *Type, o *fanOut) error {
	b := &pgx.Batch{}
	queueSaves(b, t, []*fanOut{o})
	return tx.SendBatch(ctx, b).Close()
}

// queueSaves writes what may have changed. Once a task goes on, its pause is over.
func queueSaves(b *pgx.Batch, t *Type, all []*fanOut) {
	for _, o := range all {
		b.Queue(t.at(0, `UPDATE {fan_outs} SET waits = $4, spawned = $5, firsts = $6, starts = $7,
			succeeded = $8, failed = $9, cancelled = $10, again = $11, stopped = $12, closed = $13,
			paused_at = CASE WHEN NOT $13 THEN paused_at END
			WHERE type = $1 AND id = $2 AND seq = $3`), o.number, o.id, o.seq, o.waits, o.spawned,
			o.firsts, o.starts, o.ended.succeeded, o.ended.failed, o.ended.cancelled, o.again, o.stopped,
			o.closed)
	}
}

// run is the ids of some children: n from first on, of which that has an index.
type run struct {
	first int64
	index int
	n     int
}

// last returns the last id of a run.
func (r run) last() int64 { return r.first + int64(r.n) - 1 }

// position returns the roll of a run.
func (r run) position() int { return asyncflow.TaskID{Number: r.first}.Position() }

func (r run) ids() []int64 {
	ids := make([]int64, r.n)
	for i := range ids {
		ids[i] = r.first + int64(i)
	}
	return ids
}

// runs returns the ids of the children that are made, with indexes from from to before to.
func (o *fanOut) runs(from, to int) (all []run) {
	for i, first := range o.firsts {
		start, end := int(o.starts[i]), o.spawned
		if i+1 < len(o.starts) {
			end = int(o.starts[i+1])
		}
		begin, end := max(start, from), min(end, to)
		if begin < end {
			all = append(all, run{first + int64(begin-start), begin, end - begin})
		}
	}
	return all
}

// paused reports whether no child begins.
func (o *fanOut) paused() bool { return o.pausedAt != nil }

// capacity returns how many more children may run at once. There are no more votes than are needed.
func (o *fanOut) capacity() int {
	if o.tally != nil {
		return max(0, o.tally.Needed()-(o.spawned-o.ended.sum()))
	}
	if o.rule.MaxParallel == 0 {
		return math.MaxInt
	}
	return max(0, o.rule.MaxParallel-(o.spawned-o.ended.sum()))
}

// settledAll reports whether all children have ended, and no other one will be made.
func (o *fanOut) settledAll() bool {
	all := o.spawned == o.count
	if o.tally != nil {
		all = o.tally.Decided()
	}
	return o.again == nil && o.ended.sum() == o.spawned && (o.stopped || all)
}

// failed reports whether the task can't go on with what its children have done.
func (o *fanOut) failed() bool {
	if o.tally != nil {
		out := o.spawned == o.count && o.ended.sum() == o.count // there can be no further vote
		return o.tally.Failed() || out && !o.tally.Decided()
	}
	return o.rule.OnChildFailure.TooMany(o.ended.failed+o.ended.cancelled, o.count)
}

func (s *Store) childrenOf(
	ctx context.Context, t *Type, o *fanOut,
) (*asyncflow.Children, error) {
	c := &asyncflow.Children{Total: o.count, Waiting: o.count - o.spawned,
		Succeeded: o.ended.succeeded, Failed: o.ended.failed, Cancelled: o.ended.cancelled}
	switch {
	case o.rule.Quorum != nil: // further votes are made as needed
		c.Total, c.Waiting = o.spawned, 0
	case o.stopped:
		c.Waiting, c.Cancelled = 0, c.Cancelled+c.Waiting
	}
	if o.closed {
		return c, nil
	}
	var waiting int
	for _, r := range o.runs(0, o.spawned) {
		var leased, waits int
		err := s.of(t.Tenant).QueryRow(ctx, t.at(0, `
			SELECT (SELECT count(*) FROM {lease} WHERE type = $1 AND id BETWEEN $2 AND $3),
			  (SELECT count(*) FROM {wait} WHERE type = $1 AND id BETWEEN $2 AND $3)`), t.number, r.first,
			r.last()).Scan(&leased, &waits)
		if err != nil {
			return nil, err
		}
		c.Running, waiting = c.Running+leased, waiting+waits
	}
	c.Pending = max(0, o.spawned-o.ended.sum()-c.Running-waiting)
	c.Waiting += waiting
	return c, nil
}

// isChildSQL reports whether the task t is a child, by how its options begin. Those of a child may
// have 64 KiB of shared input, which takes long to parse; those of other tasks have less than
// 8 KiB, so that large ones need not even be read.
const isChildSQL = `coalesce(pg_column_size(t.options) > 8192
    OR starts_with(t.options::text, '{"child":'), false)`
