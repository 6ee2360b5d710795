package trees

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// reopen prepares the redrive of a task, a child or a parent, from a stage.
//
// A child is redriven while its parent waits: it then counts as not ended. Of a parent that fanned
// out in that stage, children is what is left to do: to redrive the children that didn't succeed.
// It is nil if the task is to fan out anew. refusal says why the task can't be redriven now. keys
// counts the tasks of each flow key that wait for their children again by the same transaction.
func reopen(
	ctx context.Context, tx pgx.Tx, t *config.Type, task end, stage int, r Redrive,
	keys map[string]int,
) (children *records.OutboxRow, refusal, err error) {
	o, refusal, err := toReopen(ctx, tx, t, task, stage, r, keys)
	if refusal != nil || err != nil {
		return nil, refusal, err
	}
	if _, waits := task.Options.ParentWaits(t.Number()); waits {
		refusal, err = reopenChild(ctx, tx, t, task)
	}
	if o == nil || refusal != nil || err != nil {
		return nil, refusal, err
	}
	again := 0
	o.Waits = int16(task.seq + 2)
	o.Stopped = false
	o.Closed = false
	o.Again = &again
	o.ToRedrive = o.Ended.Failed + o.Ended.Cancelled
	// a save keeps both
	_, err = tx.Exec(ctx, t.SQL(0, `UPDATE {fan_outs} SET waits = $4, stopped = false
		WHERE type = $1 AND id = $2 AND seq = $3`), o.Number, o.ID, o.Seq, o.Waits)
	if err != nil {
		return nil, nil, err
	}
	if err := records.SaveFanOut(ctx, tx, t, o); err != nil {
		return nil, nil, err
	}
	return &records.OutboxRow{Kind: records.OutboxSpawn, Number: o.Number, ID: o.ID, FanOut: o.Seq},
		nil, nil
}

// toReopen returns the fan-out whose children a redrive of its task redrives; nil: it redrives the
// task only. It is locked.
func toReopen(
	ctx context.Context, tx pgx.Tx, t *config.Type, task end, stage int, r Redrive,
	keys map[string]int,
) (o *records.FanOut, refusal, err error) {
	// The type may no longer fan out or start tasks, as it did.
	if !task.parent || r.AllChildren || len(r.Context) > 0 {
		return nil, nil, nil
	}
	o, err = records.LatestFanOut(ctx, tx, t, task.ID.Number, 0, "FOR UPDATE")
	if err != nil || o == nil {
		return nil, nil, err
	}
	if name, _ := t.Mapped(o.Stage, 1); name != t.Stages[stage].Name {
		return nil, nil, nil
	}
	if o.Rule.Joined != nil && task.seq != int(o.Waits) { // it ended in another attempt
		return nil, nil, nil
	}
	if later, err := visitedLater(ctx, tx, t, o); later || err != nil {
		return nil, nil, err
	}
	if !o.Closed {
		return nil, asyncflow.Errorf(asyncflow.CodeConflict,
			"the children of task %s are still being cancelled; try again", task.ID), nil
	}
	if o.Rule.Quorum != nil { // new votes
		return nil, nil, nil
	}
	if o.Ended.Succeeded == o.Count { // the task itself didn't get through
		return nil, nil, nil
	}
	refusal, err = takeKey(ctx, tx, t, task, keys)
	return o, refusal, err
}

// visitedLater reports whether a task came to the stage of a fan-out again after that joined: then
// the children are those of an earlier visit.
func visitedLater(
	ctx context.Context, tx pgx.Tx, t *config.Type, o *records.FanOut,
) (later bool, err error) {
	stage, _ := t.Mapped(o.Stage, 1)
	if !t.Revisits(t.StageIndex(stage)) {
		return false, nil
	}
	err = tx.QueryRow(ctx, t.SQL(asyncflow.TaskID{Number: o.ID}.Position(), `SELECT EXISTS (
		SELECT FROM {journal} j JOIN {journal} n
		  ON n.type = j.type AND n.id = j.id AND n.seq = j.seq + 1
		  AND n.stage = ANY ($4)
		WHERE j.type = $1 AND j.id = $2 AND j.seq > $3 AND j.final IS NULL
		  AND j.outcome IN ('done', 'joined', 'signalled'))`),
		o.Number, o.ID, o.Seq, t.NamesOf(stage)).Scan(&later)
	return later, err
}

// takeKey refuses a task whose children are to be redriven while other tasks of its flow key are in
// flight or, in an ordered flow, began: it doesn't go in line, and would be in flight at once.
// Until the end of the transaction no other task of the type is leased.
func takeKey(
	ctx context.Context, tx pgx.Tx, t *config.Type, task end, keys map[string]int,
) (refusal, err error) {
	key := t.LineKeyOf(task.Options)
	if key == "" || t.Flow.InFlight() == 0 {
		return nil, nil
	}
	b := &pgx.Batch{}
	catalog.QueueLocks(b, t.Set().Tables, catalog.LeaseLock, t.Number())
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	states, err := hot.ReadKeys(ctx, tx, t, []string{key})
	if err != nil {
		return nil, err
	}
	if state := states[key]; state.Started || state.InFlight+keys[key] >= t.Flow.InFlight() {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't go on with its children while "+
				"others of its flow key are under way: try again when they have ended, or redrive it with "+
				"all_children, so that it waits for its turn", task.ID), nil
	}
	keys[key]++
	return nil, nil
}

// lockRedriven locks what redrives of some tasks of one roll change, in the order in which FollowUp
// locks it: the fan-outs in which the tasks are children or parents, and then the roll. It comes
// before it reads the ends of the children: otherwise two redrives that run at once take the same
// end back from the counts. It returns the tasks that have fan-outs. CodeNotFound when the roll was
// dropped.
func lockRedriven(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (parents map[int64]bool, err error) {
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	set := t.SetAt(position)
	// It keeps the roll from being dropped, but no FollowUp from reviving it.
	if err := config.LockRoll(ctx, tx, set, position, "KEY SHARE"); err != nil {
		return nil, err
	}
	var id int64
	parents = map[int64]bool{}
	rows, _ := tx.Query(ctx, t.SQL(position, LockRedrivenSQL), ids, t.Number())
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		parents[id] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return parents, config.ReviveRoll(ctx, tx, set, position)
}

// LockRedrivenSQL locks the fan-outs in which some tasks are children or parents, and returns the
// ids of the parents among them; 0 stands for another task. A FollowUp that redrives children holds
// the fan-out of their parent already; if it then waits for one that comes before that, it gives up
// after followPatience, and tries again.
const LockRedrivenSQL = `
WITH t AS MATERIALIZED (
  SELECT t.type, t.options->'child' AS child, t.options->'spawned'->'part' AS part
  FROM unnest($1::bigint[]) AS u (id), LATERAL (
    SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t
  WHERE t.options IS NOT NULL)
SELECT CASE WHEN o.type = $2 THEN o.id ELSE 0 END
FROM (
  SELECT type, (child->>'parent')::bigint AS id, (child->>'seq')::smallint AS seq FROM t
  UNION SELECT (part->>'type')::int, (part->>'id')::bigint, (part->>'seq')::smallint FROM t
  UNION SELECT f.type, f.id, f.seq FROM unnest($1::bigint[]) AS u (id), LATERAL (
    SELECT type, id, seq FROM {fan_outs} WHERE type = $2 AND id BETWEEN u.id AND u.id
    ORDER BY id, seq) f
  ORDER BY type, id, seq) k, LATERAL (
  SELECT type, id FROM {fan_outs}
  WHERE type = k.type AND id = k.id AND seq BETWEEN k.seq AND k.seq
  ORDER BY seq LIMIT 1 FOR UPDATE) o`

// reopenChild takes the end of a child back from its parent's count.
func reopenChild(ctx context.Context, tx pgx.Tx, t *config.Type, task end) (refusal, err error) {
	parent, _ := task.Options.ParentWaits(t.Number())
	ended := records.ChildEnded(task.Status)
	var rank int
	name := asyncflow.TaskID{Type: t.Name, Number: parent.ID}.String()
	if child := task.Options.Child; child == nil {
		rank = task.Options.Spawned.Part.Rank
		name = task.Options.Spawned.Parent
	} else if rank = child.Index; child.Vote {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s is a vote on %s, which makes others if "+
				"they are needed: redrive that one", task.ID, name), nil
	}
	tag, err := tx.Exec(ctx, t.SQL(0, `UPDATE {fan_outs}
		SET failed = failed - $4, cancelled = cancelled - $5,
		  to_redrive = greatest(to_redrive - coalesce((again <= $6)::int, 0), 0)
		WHERE type = $1 AND id = $2 AND seq = $3 AND NOT stopped AND NOT closed`), parent.Type,
		parent.ID, parent.Seq, ended.Failed, ended.Cancelled, rank)
	if err == nil && tag.RowsAffected() == 0 {
		refusal = asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s is a child of %s, which no longer waits for it: redrive that one", task.ID,
			name)
	}
	return refusal, err
}

// redriveChildren redrives the next of the children that failed or were cancelled, as many as may
// run at once. The end of a child goes on there.
func (f fanOutFollowUp) redriveChildren(t *config.Type, o *records.FanOut) error {
	from := *o.Again
	capacity := o.Capacity()
	p, n, err := f.redriveChunk(t, o, from)
	if err != nil {
		return err
	}
	to := from + n
	if to == from && from < o.Spawned {
		f.followLater(o)
		return nil
	}
	if err := records.SaveFanOut(f.ctx, f.tx, t, o); err != nil {
		return err
	}
	full, busy := false, false
	err = f.eachRun(t, o, from, to, func(t *config.Type, r records.ChildRun) error {
		if full {
			return nil
		}
		ended, _, err := endsOf(f.ctx, f.tx, t, r.IDs())
		if err != nil {
			return err
		}
		if full = len(ended) > capacity; full {
			to = r.Index + int(ended[capacity].ID.Number-r.First)
			ended = ended[:capacity]
		}
		n, err := f.untilBusy(t, ended)
		if err != nil {
			return err
		}
		if n < len(ended) {
			full, busy = true, true
			to = r.Index + int(ended[n].ID.Number-r.First)
			ended = ended[:n]
		}
		capacity -= len(ended)
		return f.redriveEnded(t, ended, p)
	})
	if err != nil {
		return err
	}
	now, err := records.LatestFanOut(f.ctx, f.tx, t, o.ID, int(o.Seq), "FOR UPDATE")
	if err != nil {
		return err
	}
	*o = *now
	if o.Again = &to; to == o.Spawned {
		o.Again = nil
	}
	switch {
	case busy:
		f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxSpawn,
			Due: f.now.Add(busyPause), Number: o.Number, ID: o.ID, FanOut: o.Seq})
	case o.Again == nil || to > from:
		f.followLater(o)
	}
	return nil
}

// busyPause is how long the redrive of a child rests whose own children are still being cancelled.
const busyPause = time.Second

// untilBusy returns how many children come before the first one whose own children are still being
// cancelled.
func (f fanOutFollowUp) untilBusy(t *config.Type, ended []end) (n int, err error) {
	if len(ended) == 0 {
		return 0, nil
	}
	var first int64
	err = f.tx.QueryRow(f.ctx, t.SQL(0,
		`SELECT coalesce(min(id), 0) FROM (`+OpenFanOutsSQL+`) o`), t.Number(),
		records.Column(ended, func(e *end) int64 { return e.ID.Number })).Scan(&first)
	if first == 0 {
		return len(ended), err
	}
	return slices.IndexFunc(ended, func(e end) bool { return e.ID.Number == first }), err
}

// redriveChunk returns how many children from an index on the transaction looks at to redrive them,
// and the priority that the redriven ones get: their parent's may have been changed after they
// ended.
func (f fanOutFollowUp) redriveChunk(
	t *config.Type, o *records.FanOut, from int,
) (p decidedPriority, n int, err error) {
	options, err := f.optionsOf(t, o)
	if err != nil {
		return p, 0, err
	}
	if p, err = f.priorityBelow(t, o, options); err != nil {
		return p, 0, err
	}
	if p.at.IsZero() {
		return p, f.chunk(o, from), nil
	}
	return p, f.priorityChunk(o, from), nil
}

// redriveEnded redrives children of one run, and gives them a priority if that was decided.
func (f fanOutFollowUp) redriveEnded(t *config.Type, ended []end, p decidedPriority) error {
	if len(ended) == 0 {
		return nil
	}
	ids := records.Column(ended, func(e *end) int64 { return e.ID.Number })
	ts := &records.Tokens{}
	all, err := redriveAll(f.ctx, f.tx, t, ids, Redrive{}, ts, f.now)
	if err != nil {
		return err
	}
	changes := f.changesOf(t)
	changes.changed = append(changes.changed, all.done...)
	changes.tokens.Lower(ts.Earliest)
	if p.at.IsZero() {
		return nil
	}
	return f.prioritizeIDs(t, all.done, p)
}
