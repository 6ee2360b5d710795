package trees

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// A task that waits for its children may get another priority. FollowUp gives it to its children
// that have not begun, a chunk at a time, and leaves what these wait for to later transactions. A
// child that runs keeps its own, so the children that it makes later look for the latest change
// above. Of two changes that concern a task, the later one decides.

// priorityOverlap is how much older than a task a change above it may be that the transaction which
// made the task didn't see.
const priorityOverlap = 10 * time.Second

// decidedPriority is a priority that children get, and since when it has been decided.
type decidedPriority struct {
	priority asyncflow.Priority // empty: that of their stage
	at       time.Time          // zero: it was not changed
	above    bool               // the task has it from another one above it
}

// priorityFollowUp is what a FollowUp does about priorities of children.
type priorityFollowUp struct{ *followUp }

// followPriority handles a row that says that children of a task get its priority, from an index
// on. A transaction that pauses or resumes them leaves that to a later one: both move their token
// rows.
func (f priorityFollowUp) followPriority(
	t *config.Type, o *records.FanOut, from int, pauses bool,
) error {
	if pauses || f.stopped >= f.s.chunks.stop {
		f.prioritizeLater(o, from)
		return nil
	}
	t, err := f.typeNow(t, t.Number())
	if err != nil || t == nil { // it was deleted
		return err
	}
	return f.prioritize(t, o, from)
}

// prioritize gives the priority of a task to its children from an index on. Index -1 stands for the
// task itself, as a child of another.
func (f priorityFollowUp) prioritize(t *config.Type, o *records.FanOut, from int) error {
	options, err := f.optionsOf(t, o)
	if err != nil {
		return err
	}
	p, err := f.priorityBelow(t, o, options)
	if err != nil {
		return err
	}
	if from < 0 {
		f.stopped++
		from = 0
		if err := f.prioritizeParent(t, o, options, p); err != nil {
			return err
		}
	}
	if p.at.IsZero() {
		return nil
	}
	n := f.priorityChunk(o, from)
	err = f.eachRun(t, o, from, from+n, func(t *config.Type, r records.ChildRun) error {
		return f.prioritizeIDs(t, r.IDs(), p)
	})
	if from += n; err == nil && from < o.Spawned {
		f.prioritizeLater(o, from)
	}
	return err
}

// sharedWeight is for how many other children one with shared input counts: each change writes all
// options of a child, and 64 KiB of them may be shared input.
const sharedWeight = 32

// priorityChunk is chunk for children that get a priority.
func (f priorityFollowUp) priorityChunk(o *records.FanOut, from int) int {
	if o.Rule.Shared == "" {
		return f.chunk(o, from)
	}
	left := f.s.chunks.stop - f.stopped
	n := max(0, min((left+sharedWeight-1)/sharedWeight, o.Spawned-from))
	f.stopped += n * sharedWeight
	return n
}

func (f priorityFollowUp) prioritizeLater(o *records.FanOut, from int) {
	f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxPriority, Number: o.Number,
		ID: o.ID, FanOut: o.Seq, At: from})
}

// prioritizeIDs changes the children of a run that have not begun. It leaves a child that waits for
// its own children to a later transaction, with these.
func (f priorityFollowUp) prioritizeIDs(t *config.Type, ids []int64, p decidedPriority) error {
	if len(ids) == 0 {
		return nil
	}
	changes := f.changesOf(t)
	above := BulkChange{Patch: asyncflow.Patch{Priority: p.priority}, Since: p.at}
	_, changed, err := ChangeAll(f.ctx, f.tx, t, ids, above, &changes.tokens, f.now)
	if err != nil {
		return err
	}
	changes.changed = append(changes.changed, changed...)
	rows, _ := f.tx.Query(f.ctx, t.SQL(0, OpenFanOutsSQL+` WHERE NOT o.stopped`), t.Number(), ids)
	below := records.OutboxRow{Kind: records.OutboxPriority, Number: t.Number(), At: -1}
	_, err = pgx.ForEachRow(rows, []any{&below.ID, &below.FanOut}, func() error {
		f.outbox = append(f.outbox, below)
		return nil
	})
	return err
}

// prioritizeParent changes a child that waits for its own children, unless it has the priority. The
// transaction may join it as well, so its rows are changed at once.
func (f priorityFollowUp) prioritizeParent(
	t *config.Type, o *records.FanOut, options asyncflow.Options, p decidedPriority,
) error {
	same := slices.Equal(options.Priority, p.priority)
	if !p.above || same || int(o.Waits) > records.MaxSeq {
		return nil
	}
	l := asyncflow.Lease{ID: asyncflow.TaskID{Type: t.Name, Number: o.ID}, Seq: int(o.Waits)}
	err := f.tx.QueryRow(f.ctx, t.SQL(0, `UPDATE {wait} SET seq = seq + 1
		WHERE type = $1 AND id = $2 AND seq = $3 AND reason = 'children'
		RETURNING stage, attempt, order_time`), o.Number, o.ID, o.Waits).
		Scan(&l.Stage, &l.Attempt, &l.OrderTime)
	if errors.Is(err, pgx.ErrNoRows) { // it was cancelled
		return nil
	}
	if err != nil {
		return err
	}
	options.Priority = p.priority
	ch := Change{Candidate: hot.Candidate{Lease: l}, options: hot.OptionsText(options),
		verdict: asyncflow.Verdict{OrderTime: l.OrderTime}}
	b := &pgx.Batch{}
	queueChanged(b, t, []Change{ch}, f.now)
	b.Queue(t.SQL(0, `UPDATE {fan_outs} SET waits = $4 WHERE type = $1 AND id = $2 AND seq = $3`),
		o.Number, o.ID, o.Seq, o.Waits+1)
	o.Waits++
	return f.tx.SendBatch(f.ctx, b).Close()
}

// optionsOf returns the options of the task of a fan-out.
func (f priorityFollowUp) optionsOf(t *config.Type, o *records.FanOut) (asyncflow.Options, error) {
	b := &pgx.Batch{}
	options := records.QueueOptions(b, t, []int64{o.ID})
	err := f.tx.SendBatch(f.ctx, b).Close()
	return options[o.ID], err
}

// priorityBelow returns what the children of a task get: its own priority in the stage in which it
// waits for them or, if that was decided later, the priority of a task above.
func (f priorityFollowUp) priorityBelow(
	t *config.Type, o *records.FanOut, options asyncflow.Options,
) (p decidedPriority, err error) {
	var created time.Time
	var changed *time.Time
	err = f.tx.QueryRow(f.ctx, t.SQL(asyncflow.TaskID{Number: o.ID}.Position(), `
		SELECT t.created_at, (SELECT max(at) FROM {journal} j WHERE j.type = t.type
		  AND j.id = t.id AND j.outcome = 'changed' AND j.options IS NOT NULL)
		FROM {task} t WHERE t.type = $1 AND t.id = $2`), o.Number, o.ID).Scan(&created, &changed)
	if err != nil {
		return p, err
	}
	stage, _ := t.Mapped(o.Stage, 1)
	p.priority = headStart(options.Priority, t.StageIndex(stage))
	if changed != nil {
		p.at = *changed
	}
	above, err := f.changeAbove(options.Awaits(t.Number()))
	if err != nil {
		return p, err
	}
	since := created.Add(-priorityOverlap)
	if by := options.Spawned; by != nil && !by.PriorityAt.IsZero() {
		since = by.PriorityAt
	}
	if above.at.After(p.at) && above.at.After(since) {
		p = above
		p.above = true
	}
	return p, nil
}

// headStart returns the priority that counts in a stage for all stages.
func headStart(p asyncflow.Priority, stage int) asyncflow.Priority {
	ahead, ok := p.ForStage(max(0, stage))
	if !ok {
		return nil
	}
	return asyncflow.Priority{int(ahead / time.Second)}
}

// changeAbove returns the latest change of the priorities of tasks while they wait for children;
// zero: there was none.
func (f priorityFollowUp) changeAbove(all []asyncflow.Awaited) (latest decidedPriority, err error) {
	b := &pgx.Batch{}
	for _, a := range all {
		position := asyncflow.TaskID{Number: a.ID}.Position()
		t := f.types[a.Type]
		if t == nil || !t.Has(position) { // it is gone, and nobody waits for the task
			continue
		}
		b.Queue(t.SQL(position, `
			SELECT at, stage, options->'priority' FROM {journal}
			WHERE type = $1 AND id = $2 AND seq >= $3 AND outcome = 'changed'
			  AND options IS NOT NULL
			ORDER BY seq DESC LIMIT 1`), a.Type, a.ID, a.Seq).Query(func(rows pgx.Rows) error {
			var c decidedPriority
			var stage string
			var priority *asyncflow.Priority
			_, err := pgx.ForEachRow(rows, []any{&c.at, &stage, &priority}, func() error {
				if priority == nil || !c.at.After(latest.at) {
					return nil
				}
				stage, _ = t.Mapped(stage, 1)
				c.priority = headStart(*priority, t.StageIndex(stage))
				latest = c
				return nil
			})
			return err
		})
	}
	if b.Len() == 0 {
		return latest, nil
	}
	return latest, f.tx.SendBatch(f.ctx, b).Close()
}

// prioritizeRedriven gives children that were redriven by themselves the latest priority from
// above. A child that ran, or was final, when that was decided doesn't have it yet.
func (s *Trees) prioritizeRedriven(ctx context.Context, tx pgx.Tx, a *redrives) error {
	if len(a.children) == 0 {
		return nil
	}
	f := priorityFollowUp{s.newFollowUp(ctx, a.t.Tenant)}
	f.tx = tx
	f.now = a.now
	f.types[a.t.Number()] = a.t
	for _, siblings := range a.children {
		p, err := f.changeAbove(siblings.above)
		if err == nil && !p.at.IsZero() {
			err = f.prioritizeIDs(a.t, siblings.ids, p)
		}
		if err != nil {
			return err
		}
	}
	tokens := &f.changesOf(a.t).tokens
	if tokens.Empty() && len(f.outbox) == 0 {
		return nil
	}
	all := records.Inserts{Outbox: f.outbox, Tables: a.t.Set().Tables}
	all.AddTokens(a.t, tokens)
	a.tokens.Lower(tokens.Earliest)
	b := &pgx.Batch{}
	all.Queue(b, a.now)
	return tx.SendBatch(ctx, b).Close()
}
