package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Redrive says where a failed or cancelled task is set going again.
type Redrive struct {
	Stage   string          // "": where it ended; else that stage or an earlier one
	Context json.RawMessage // nil: what the stage was sent with before
}

// Redrive sets a failed or cancelled task going again and returns it: with all
// attempts of its stages, as part of the same journal. A task that is not final, or
// has succeeded, is CodeConflict; of two at once, one wins.
func (s *Store) Redrive(ctx context.Context, tenant string, id asyncflow.TaskID, r Redrive) (Task, error) {
	t, err := s.typeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	ts := &tokens{}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		task, seq, err := lastOf(ctx, tx, t, id)
		if err != nil {
			return err
		}
		stage, err := redriveStage(t, task, r.Stage)
		if err != nil {
			return err
		}
		now := s.Clock.Now()
		order := asyncflow.EnterOrder(t.TaskType, stage, task.Options, now)
		if err := writeRedrive(ctx, tx, t, id, seq+1, stage, r.Context, order, now); err != nil {
			return err
		}
		ts.add(id.Number, seq+2, asyncflow.Verdict{Kind: asyncflow.Retry, Stage: t.Stages[stage].Name, Attempt: 1, OrderTime: order}, now)
		b := &pgx.Batch{}
		ts.queue(b, t)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return Task{}, wrap(err, "Redrive(%q, %s)", tenant, id)
	}
	s.Wakeups.Announce(t.Key(), ts.earliest)
	s.watched.tell(t.Key(), id.Number)
	return s.Task(ctx, tenant, id)
}

// lastOf returns how a task ended, its options, and the seq of its last journal row;
// CodeConflict if it is not failed or cancelled.
func lastOf(ctx context.Context, tx pgx.Tx, t *Type, id asyncflow.TaskID) (task Task, seq int, err error) {
	err = tx.QueryRow(ctx, t.tables.at(id.Position(), `
		SELECT coalesce(j.seq, 0), coalesce(j.final, ''), coalesce(j.stage, ''), coalesce(t.options, '{}')
		FROM {task} t LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.id = t.id ORDER BY seq DESC LIMIT 1) j ON true
		WHERE t.id = $1`), id.Number).Scan(&seq, &task.Status, &task.Stage, &task.Options)
	switch {
	case err == pgx.ErrNoRows:
		err = unknownTask(id)
	case err == nil && task.Status == asyncflow.StatusSucceeded:
		err = asyncflow.Errorf(asyncflow.CodeConflict, "task %s has succeeded: there is nothing to redrive", id)
	case err == nil && !task.Status.Final():
		err = asyncflow.Errorf(asyncflow.CodeConflict, "task %s is not final: it goes on by itself", id)
	}
	return task, seq, err
}

// redriveStage returns the index of the stage to go on with.
func redriveStage(t *Type, task Task, name string) (int, error) {
	ended := t.StageIndex(task.Stage)
	if name == "" {
		name = task.Stage
	}
	stage := t.StageIndex(name)
	switch {
	case stage < 0:
		return 0, asyncflow.InvalidField("stage", "is %q, which is not a stage of %s", name, t.Name)
	case ended >= 0 && stage > ended:
		return 0, asyncflow.InvalidField("stage", "is %q, which comes after %s, where the task ended", name, task.Stage)
	}
	return stage, nil
}

// writeRedrive writes the journal row: its output is what the stage is sent with,
// which is the last output of the stages before it, or the task's context. When
// another redrive has written that row, it is CodeConflict.
func writeRedrive(ctx context.Context, tx pgx.Tx, t *Type, id asyncflow.TaskID, seq, stage int, doc json.RawMessage, order, now time.Time) error {
	tag, err := tx.Exec(ctx, t.tables.at(id.Position(), `
		INSERT INTO {journal} (id, seq, at, stage, attempt, outcome, output, next_time)
		SELECT t.id, $2, $3, $4, 1, 'redriven', coalesce($5::text::json,
		  (SELECT j.output FROM {journal} j
		   WHERE j.id = t.id AND j.output IS NOT NULL AND (j.stage = ANY ($6) OR j.outcome = 'redriven' AND j.stage = $4)
		   ORDER BY j.seq DESC LIMIT 1),
		  t.context), $7
		FROM {task} t WHERE t.id = $1
		ON CONFLICT (id, seq) DO NOTHING`),
		id.Number, seq, now, t.Stages[stage].Name, orNull(string(doc)), t.StageNames()[:stage], order)
	if err == nil && tag.RowsAffected() == 0 {
		err = asyncflow.Errorf(asyncflow.CodeConflict, "task %s is being redriven already", id)
	}
	return err
}
