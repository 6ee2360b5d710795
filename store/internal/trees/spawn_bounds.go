package trees

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// BoundSpawn checks the tasks that an attempt would start against MaxStarted and, if the task would
// wait for them, against MaxTree, in which they count from then on. If the attempt isn't settled,
// they count all the same. The error is CodeSpawn if there would be too many.
func (s *Trees) BoundSpawn(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome,
) error {
	n := len(o.Spawn)
	if seq*asyncflow.MaxSpawn+n > asyncflow.MaxStarted { // else it can't have started as many
		var started int
		err := s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(0, `SELECT coalesce(sum(count), 0)
			FROM {spawns} WHERE type = $1 AND id = $2 AND seq <> $3`), t.Number(), id.Number, seq).
			Scan(&started)
		if err != nil {
			return postgres.Wrap(err, "BoundSpawn(%s)", id)
		}
		if started+n > asyncflow.MaxStarted {
			return asyncflow.Errorf(asyncflow.CodeSpawn, "the task has started %d tasks, and "+
				"would start %d more; the limit of all its attempts is %d", started, n,
				asyncflow.MaxStarted)
		}
	}
	if o.Join == nil {
		return nil
	}
	b := &pgx.Batch{}
	options := records.QueueOptions(b, t, []int64{id.Number})
	if err := s.core.DB(t.Tenant).Send(ctx, b); err != nil {
		return postgres.Wrap(err, "BoundSpawn(%s)", id)
	}
	return s.GrowTree(ctx, t, options[id.Number], n)
}

// GrowTree counts n tasks, for which a task with some options would wait, in the tree of that task.
// The error is CodeSpawn if the tree would have more than MaxTree; then they don't count. A task
// that is nobody's child has a tree of its own.
func (s *Trees) GrowTree(
	ctx context.Context, t *config.Type, options asyncflow.Options, n int,
) error {
	all := options.Awaits(t.Number())
	if len(all) == 0 {
		return nil
	}
	root := all[len(all)-1]
	var fits bool
	err := s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(0, `
		WITH grown AS (UPDATE {fan_outs} SET tree = tree + $4
		  WHERE type = $1 AND id = $2 AND seq = $3 AND count + tree + $4 <= $5 RETURNING id)
		SELECT EXISTS (SELECT FROM grown) OR NOT EXISTS (SELECT FROM {fan_outs}
		  WHERE type = $1 AND id = $2 AND seq = $3)`), root.Type, root.ID, root.Seq, n,
		asyncflow.MaxTree).Scan(&fits)
	if err == nil && !fits {
		return asyncflow.Errorf(asyncflow.CodeSpawn, "too_many_children: with %d more, the tree "+
			"to which the task belongs would have more than %d tasks", n, asyncflow.MaxTree)
	}
	return postgres.Wrap(err, "GrowTree(%d)", root.ID)
}
