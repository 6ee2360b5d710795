package trees

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Redrive says where a failed or cancelled task starts again.
type Redrive struct {
	Stage   string          // that in which it ended ("") or an earlier one
	Context json.RawMessage // nil: the stage's input before
	// AllChildren redrives a task that fanned out with new children. Otherwise only failed and
	// cancelled children are redriven, unless there is another context.
	AllChildren bool
	// StartBy and EndBy are another lifetime; zero: durations count anew, and times stay.
	StartBy, EndBy asyncflow.Deadline
	// Fresh forgets the checkpoint that the stage's last attempt left.
	Fresh bool
	// Dependents also redrives the tasks that failed or were cancelled because of this one.
	Dependents bool
	// DryRun changes nothing; Task.Redriven has what Dependents would redrive.
	DryRun bool

	parked bool // the task waits for its dependencies again
}

// verdict returns how a redriven task goes on with a stage: in line or, there, with its children or
// its dependencies.
func (r Redrive) verdict(stage string, children bool, order time.Time) asyncflow.Verdict {
	v := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: 1, OrderTime: order}
	switch {
	case r.parked:
		v.Kind = asyncflow.Park
		v.Reason = asyncflow.WaitDependencies
	case children:
		v.Kind = asyncflow.Spawn
		v.Reason = asyncflow.WaitChildren
	}
	return v
}

// RedriveAll redrives the given tasks of one roll by themselves, where it can. Children among them
// take the latest priority from above. It returns their ids, and for each other task why it can't
// be redriven.
func RedriveAll(
	ctx context.Context, s *Trees, tx pgx.Tx, t *config.Type, ids []int64, r Redrive,
	ts *records.Tokens, now time.Time,
) (done []int64, refused map[int64]error, err error) {
	all, err := redriveAll(ctx, tx, t, ids, r, ts, now)
	if err != nil {
		return nil, nil, err
	}
	if err := s.prioritizeRedriven(ctx, tx, all); err != nil {
		return nil, nil, err
	}
	return all.done, all.refused, nil
}

// redriveAll is RedriveAll without the priorities.
func redriveAll(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, r Redrive, ts *records.Tokens,
	now time.Time,
) (*redrives, error) {
	parents, err := lockRedriven(ctx, tx, t, ids)
	if err != nil {
		return nil, err
	}
	ended, refused, err := endsOf(ctx, tx, t, ids)
	if err != nil {
		return nil, err
	}
	all := &redrives{t: t, how: r, now: now, keys: map[string]int{}, refused: refused, tokens: ts}
	for _, task := range ended {
		task.parent = parents[task.ID.Number]
		if err := all.add(ctx, tx, task); err != nil {
			return nil, err
		}
	}
	return all, all.write(ctx, tx)
}

// redrives are the redrives of some tasks of one roll, in a transaction.
type redrives struct {
	t    *config.Type
	how  Redrive
	now  time.Time
	keys map[string]int // see reopen

	journal  pgx.Batch // inserts a row for each task
	done     []int64
	children map[asyncflow.Awaited]*siblings // that were redriven, by the stage that waits
	refused  map[int64]error
	counts   records.Tally
	tokens   *records.Tokens
	outbox   []records.OutboxRow

	lifetimes []records.LifetimeRow
}

// siblings are children for which the same stage waits.
type siblings struct {
	ids   []int64
	above []asyncflow.Awaited // that stage, and the stages that wait for its task
}

// add redrives one task, or refuses it.
func (a *redrives) add(ctx context.Context, tx pgx.Tx, task end) error {
	id := task.ID.Number
	stage, err := redriveStage(a.t, task.Stage, a.how.Stage)
	if err != nil {
		a.refused[id] = err
		return nil
	}
	children, refusal, err := reopen(ctx, tx, a.t, task, stage, a.how, a.keys)
	if err != nil {
		return err
	}
	if refusal != nil {
		a.refused[id] = refusal
		return nil
	}
	before := task.Options.Lifetime
	if task.Options.Child == nil {
		task.Options.Lifetime, err = before.Renewed(a.how.StartBy, a.how.EndBy, a.now)
	} else if !a.how.StartBy.IsZero() || !a.how.EndBy.IsZero() {
		err = asyncflow.Errorf(asyncflow.CodeConflict, "task %s has no lifetime of its own: it is "+
			"a child, and ends with its parent", task.ID)
	}
	if err != nil {
		a.refused[id] = err
		return nil
	}
	var options *string
	if before != nil || task.Options.Lifetime != nil {
		text := orNone(hot.OptionsText(task.Options))
		options = &text
	}
	order := asyncflow.EnterOrder(a.t.TaskType, stage, task.Options, a.now)
	row := queueRedrive(&a.journal, a.t, task.ID, task.seq+1, stage, a.how.Context, order, a.now,
		options)
	row.Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			a.refused[id] = asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s is being redriven already", task.ID)
			return nil
		}
		a.written(task, stage, children, order)
		return nil
	})
	return nil
}

// written notes what follows from a task's journal row: its token row, its count, and what is left
// to do about its children.
func (a *redrives) written(task end, stage int, children *records.OutboxRow, order time.Time) {
	a.done = append(a.done, task.ID.Number)
	a.addChild(task)
	a.counts.Final(task.Status, -1)
	if task.expired {
		a.counts.Expired--
	}
	if children != nil {
		a.outbox = append(a.outbox, *children)
	}
	v := a.how.verdict(a.t.Stages[stage].Name, children != nil, order)
	if a.t.HasLifetime(&task.Options) {
		e := task.Options.Lifetime.End()
		if v.Reason != asyncflow.WaitChildren { // or else its stage had begun
			e = a.t.Expiry(&task.Options, v.Stage, a.now, true)
		}
		a.lifetimes = append(a.lifetimes,
			records.NewLifetime(a.t, task.ID.Number, e, task.seq+1))
	}
	a.tokens.Add(task.ID.Number, task.seq+2, a.t.LineKeyOf(task.Options), v, a.now, a.now)
}

// addChild notes a redriven task as a child, if it is one.
func (a *redrives) addChild(task end) {
	parent, waits := task.Options.ParentWaits(a.t.Number())
	if !waits {
		return
	}
	if a.children == nil {
		a.children = map[asyncflow.Awaited]*siblings{}
	}
	if a.children[parent] == nil {
		a.children[parent] = &siblings{above: task.Options.Awaits(a.t.Number())}
	}
	a.children[parent].ids = append(a.children[parent].ids, task.ID.Number)
}

// write writes the journal rows, and then what follows from the new ones.
func (a *redrives) write(ctx context.Context, tx pgx.Tx) error {
	if err := tx.SendBatch(ctx, &a.journal).Close(); err != nil {
		return err
	}
	all := records.Inserts{Outbox: a.outbox}
	all.AddTokens(a.t, a.tokens)
	all.AddTally(a.t, a.counts)
	b := &pgx.Batch{}
	if a.how.Fresh {
		b.Queue(a.t.SQL(0, records.DeleteCheckpointsSQL), a.t.Number(), a.done)
	}
	all.Queue(b, a.now)
	records.QueueLifetimes(b, a.t.Set().Tables, a.lifetimes, a.now)
	queueTypeExists(b, a.t)
	return tx.SendBatch(ctx, b).Close()
}

// queueTypeExists fails the batch if the type was deleted: its shared tables are still there.
func queueTypeExists(b *pgx.Batch, t *config.Type) {
	b.Queue(t.SQL(0, `SELECT FROM {types} WHERE number = $1`), t.Number()).Exec(
		func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return config.UnknownType(t.Name)
			}
			return nil
		})
}

// end says how a task ended, with its options and the seq of its last journal row.
type end struct {
	ID      asyncflow.TaskID
	Status  asyncflow.Status
	Stage   string
	Options asyncflow.Options
	seq     int
	expired bool // and was counted so
	parent  bool // it has waited for children; known in RedriveAll
}

// EndsSQL reads the ends of tasks of one roll. For its form see records.TakeAnyWaitSQL.
const EndsSQL = `
SELECT t.id, coalesce(j.seq, 0), coalesce(j.final, ''), coalesce(j.stage, ''),
  coalesce({options}, '{}'), coalesce(j.outcome = 'expired'
    AND j.at >= (SELECT max(at) FROM {expired_since}), false)
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t
LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.type = t.type AND j.id = t.id
  ORDER BY seq DESC LIMIT 1) j ON true
ORDER BY t.id`

// endsOf returns the ends of the failed and cancelled ones among the given tasks of one roll, by
// id. For each other task it returns why it can't be redriven.
func endsOf(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (ended []end, refused map[int64]error, err error) {
	rows, err := tx.Query(ctx, t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), EndsSQL), ids,
		t.Number())
	if err != nil {
		return nil, nil, err
	}
	refused = make(map[int64]error)
	for _, id := range ids {
		refused[id] = config.UnknownTask(asyncflow.TaskID{Type: t.Name, Number: id})
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e end, err error) {
		e.ID.Type = t.Name
		return e, row.Scan(&e.ID.Number, &e.seq, &e.Status, &e.Stage, &e.Options, &e.expired)
	})
	for _, e := range all {
		switch {
		case e.Options.Erased != nil:
			refused[e.ID.Number] = e.Options.Erased.Refusal(e.ID)
		case e.Status == asyncflow.StatusSucceeded:
			refused[e.ID.Number] = asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s has succeeded: there is nothing to redrive", e.ID)
		case e.seq > records.MaxSeq:
			refused[e.ID.Number] = records.JournalFull(e.ID)
		case !e.Status.Final():
			refused[e.ID.Number] = asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s is not final: it goes on by itself", e.ID)
		default:
			delete(refused, e.ID.Number)
			ended = append(ended, e)
		}
	}
	return ended, refused, err
}

// redriveStage returns the index of the stage that a redrive starts with.
func redriveStage(t *config.Type, last, name string) (int, error) {
	mapped, _ := t.Mapped(last, 1)
	ended := t.StageIndex(mapped)
	if name == "" {
		name = mapped
	}
	stage := t.StageIndex(name)
	switch {
	case stage < 0:
		return 0, asyncflow.InvalidField("stage", "is %q, which is not a stage of %s", name, t.Name)
	case ended >= 0 && stage > ended:
		return 0, asyncflow.InvalidField("stage",
			"is %q, which comes after %s, where the task ended", name, last)
	}
	return stage, nil
}

// queueRedrive queues the insert of the journal row; its output is the stage's input. That is doc
// or, without it, the stage's input when the task was in it last (or in a removed stage that is
// mapped to it): the latest output before the stage was done. The input of a stage that the task
// was never in is the latest output of the stages before it. Without any output it is the task's
// context. The statement inserts nothing when another redrive wrote the row.
func queueRedrive(
	b *pgx.Batch, t *config.Type, id asyncflow.TaskID, seq, stage int, doc json.RawMessage,
	order, now time.Time, options *string,
) *pgx.QueuedQuery {
	return b.Queue(t.SQL(id.Position(), `
		INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, output, next_time,
		  options)
		SELECT t.type, t.id, $2, $3, $4, 1, 'redriven', coalesce($5::text,
		  (SELECT j.output FROM {journal} j
		   WHERE j.type = t.type AND j.id = t.id AND j.output IS NOT NULL
		     AND CASE WHEN v.last IS NULL THEN j.stage = ANY ($6)
		     ELSE j.seq < v.last
		       OR j.seq = v.last AND j.outcome NOT IN ('done', 'joined', 'signalled') END
		   ORDER BY j.seq DESC LIMIT 1),
		  t.context), $7, $10::text::json
		FROM {task} t, LATERAL (
		  SELECT coalesce(max(j.seq) FILTER (WHERE j.stage = $4), max(j.seq)) AS last
		  FROM {journal} j WHERE j.type = t.type AND j.id = t.id AND j.stage = ANY ($8)) v
		WHERE t.type = $9 AND t.id = $1
		ON CONFLICT DO NOTHING`),
		id.Number, seq, now, t.Stages[stage].Name, postgres.OrNull(string(doc)),
		t.StageNames()[:stage],
		order, t.NamesOf(t.Stages[stage].Name), t.Number(), options)
}
