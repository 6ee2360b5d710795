package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// BoundSpawn checks the tasks that an attempt would start against MaxStarted and, if the task would
// wait for them, against MaxTree, in which they count from then on. If the attempt isn't settled,
// they count until the tree is counted anew. The error is CodeSpawn if there would be too many.
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
// that is nobody's child has a tree of its own. Before it refuses, it counts the tree, if it may.
func (s *Trees) GrowTree(
	ctx context.Context, t *config.Type, options asyncflow.Options, n int,
) error {
	all := options.Awaits(t.Number())
	if len(all) == 0 {
		return nil
	}
	root := all[len(all)-1]
	grown, err := s.addToTree(ctx, t, root, n)
	if err == nil && !grown {
		grown, err = s.recountTree(ctx, t, root)
		if err == nil && grown {
			grown, err = s.addToTree(ctx, t, root, n)
		}
	}
	if err == nil && !grown {
		return asyncflow.Errorf(asyncflow.CodeSpawn, "too_many_children: with %d more, the tree "+
			"to which the task belongs would have more than %d tasks", n, asyncflow.MaxTree)
	}
	return postgres.Wrap(err, "GrowTree(%d)", root.ID)
}

// addToTree adds n tasks to the count of a tree, unless it would be over MaxTree.
func (s *Trees) addToTree(
	ctx context.Context, t *config.Type, root asyncflow.Awaited, n int,
) (fits bool, err error) {
	err = s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(0, `
		WITH grown AS (UPDATE {fan_outs} SET tree = tree + $4, tree_at = $6
		  WHERE type = $1 AND id = $2 AND seq = $3 AND count + tree + $4 <= $5 RETURNING id)
		SELECT EXISTS (SELECT FROM grown) OR NOT EXISTS (SELECT FROM {fan_outs}
		  WHERE type = $1 AND id = $2 AND seq = $3)`), root.Type, root.ID, root.Seq, n,
		asyncflow.MaxTree, s.core.Clock.Now()).Scan(&fits)
	return fits, err
}

// admittedLater is how long after it was counted an attempt may still be settled. Until then its
// tasks are in no other table.
const admittedLater = time.Minute

// treeSQL counts the tasks of all levels below the children of a fan-out: of each task, the
// children of its latest fan-out.
const treeSQL = `
WITH RECURSIVE tree AS (
  SELECT type, count, spawned, firsts, starts, types, 0 AS level FROM {fan_outs}
  WHERE type = $1 AND id = $2 AND seq = $3
  UNION ALL
  SELECT f.type, f.count, f.spawned, f.firsts, f.starts, f.types, t.level + 1
  FROM tree t, LATERAL (
    SELECT coalesce(u.type, t.type) AS type, u.first,
      u.first + coalesce(lead(u.start) OVER (ORDER BY u.start), t.spawned) - u.start - 1 AS last
    FROM unnest(t.firsts, t.starts, t.types) AS u (first, start, type)) r,
  LATERAL (SELECT DISTINCT ON (f.id) f.* FROM {fan_outs} f
    WHERE f.type = r.type AND f.id BETWEEN r.first AND r.last ORDER BY f.id, f.seq DESC) f
  WHERE t.level <= $4)
SELECT coalesce(sum(count) FILTER (WHERE level > 0), 0) FROM tree`

// recountTree counts the tasks of a tree that has none to spare, and reports whether there are
// fewer than was known: attempts were counted and then lost, or children started anew. It leaves a
// tree alone in which attempts were counted lately, and so counts one about once a minute.
func (s *Trees) recountTree(
	ctx context.Context, t *config.Type, root asyncflow.Awaited,
) (fewer bool, err error) {
	var before int
	var at *time.Time
	err = s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(0, `SELECT tree, tree_at FROM {fan_outs}
		WHERE type = $1 AND id = $2 AND seq = $3`), root.Type, root.ID, root.Seq).
		Scan(&before, &at)
	now := s.core.Clock.Now()
	if err != nil || at != nil && at.After(now.Add(-admittedLater)) {
		return false, err
	}
	found := before // an older node may have counted attempts lately
	if at != nil {
		err = s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(0, treeSQL), root.Type, root.ID, root.Seq,
			asyncflow.MaxDepth+1).Scan(&found)
	}
	if err != nil {
		return false, err
	}
	tag, err := s.core.DB(t.Tenant).Exec(ctx, t.SQL(0, `UPDATE {fan_outs}
		SET tree = $4, tree_at = $5
		WHERE type = $1 AND id = $2 AND seq = $3 AND tree = $6
		  AND tree_at IS NOT DISTINCT FROM $7`),
		root.Type, root.ID, root.Seq, found, now, before, at)
	return err == nil && tag.RowsAffected() > 0 && found < before, err
}
