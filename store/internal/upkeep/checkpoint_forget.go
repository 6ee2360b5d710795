package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// dueCheckpointsSQL locks checkpoints that are to be checked. Each is checked again at twice its
// age.
const dueCheckpointsSQL = `
WITH d AS MATERIALIZED (
  SELECT ctid AS t, $1::timestamptz + greatest($1 - written_at, $3) AS next
  FROM {checkpoints} WHERE check_at <= $1 ORDER BY check_at LIMIT $2
  FOR UPDATE SKIP LOCKED)
UPDATE {checkpoints} c SET check_at = d.next FROM d
WHERE c.ctid = d.t
RETURNING c.type, c.id`

// DeleteOverSQL deletes checkpoints of tasks of one roll that no longer count: their stage was done
// since, or the task is gone. OFFSET 0 keeps the planner from reading all tasks, or all of the
// journal, into a hash.
const DeleteOverSQL = records.DeleteCheckpointsSQL + ` AND (
  NOT EXISTS (SELECT FROM {task} t WHERE t.type = c.type AND t.id = c.id OFFSET 0)
  OR EXISTS (SELECT FROM {journal} j WHERE j.type = c.type AND j.id = c.id AND j.seq >= c.seq
    AND j.outcome IN ('done', 'joined', 'signalled') OFFSET 0))`

// deleteUnknownSQL deletes checkpoints of a type that was deleted.
const deleteUnknownSQL = records.DeleteCheckpointsSQL +
	` AND NOT EXISTS (SELECT FROM {types} WHERE number = $1)`

// ForgetCheckpoints checks up to JobBatch of a tenant's checkpoints, and deletes the ones that
// no longer count. It returns how many it checked.
func (s *Upkeep) ForgetCheckpoints(ctx context.Context, tenant string) (n int, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		n, err = s.forgetCheckpoints(ctx, tx, tenant)
		return err
	})
	return n, postgres.Wrap(err, "ForgetCheckpoints(%q)", tenant)
}

func (s *Upkeep) forgetCheckpoints(ctx context.Context, tx pgx.Tx, tenant string) (int, error) {
	if err := postgres.Pin(ctx, tx); err != nil {
		return 0, err
	}
	names := config.NewTables(tenant, "")
	rows, _ := tx.Query(ctx, names.SQL(0, dueCheckpointsSQL), s.core.Clock.Now(), catalog.JobBatch,
		records.FirstCheck)
	due := map[int32][]int64{}
	n := 0
	var number int32
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&number, &id}, func() error {
		due[number] = append(due[number], id)
		n++
		return nil
	})
	if err != nil || n == 0 {
		return 0, err
	}
	b := &pgx.Batch{}
	for _, t := range s.core.Catalog.TypesOf(tenant) {
		ids, some := due[t.Number()]
		if !some {
			continue
		}
		delete(due, t.Number())
		if t, err = config.RollsNow(ctx, tx, t); err != nil {
			return 0, err
		}
		queueForget(b, t, ids)
	}
	for number, ids := range due {
		b.Queue(names.SQL(0, deleteUnknownSQL), number, ids)
	}
	return n, tx.SendBatch(ctx, b).Close()
}

// queueForget deletes the checkpoints of some tasks of a type that no longer count.
func queueForget(b *pgx.Batch, t *config.Type, ids []int64) {
	parts := map[int][]int64{}
	for _, number := range ids {
		position := asyncflow.TaskID{Number: number}.Position()
		parts[position] = append(parts[position], number)
	}
	for position, ids := range parts {
		sql := records.DeleteCheckpointsSQL
		if t.Has(position) {
			sql = DeleteOverSQL
		}
		b.Queue(t.SQL(position, sql), t.Number(), ids)
	}
}

// DryRunForgetCheckpoints returns how many checkpoints ForgetCheckpoints would check.
func (s *Upkeep) DryRunForgetCheckpoints(ctx context.Context, tenant string) (int, error) {
	return postgres.CountRows(ctx, s.core.DB(tenant), config.NewTables(tenant, "").SQL(0,
		`SELECT count(*) FROM {checkpoints} WHERE check_at <= $1`), s.core.Clock.Now())
}
