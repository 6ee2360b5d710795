package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// SealRoll makes Postgres refuse new rows in a roll that is no longer open, by a foreign key to
// a table that is always empty. Its lock waits for transactions that are adding rows, and
// blocks no reader. SealRoll reports whether it got the lock in time.
func (s *Upkeep) SealRoll(
	ctx context.Context,
	set *config.TableSet,
	position int,
) (done bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		if position >= set.End && !set.Closed {
			return asyncflow.Errorf(asyncflow.CodeInternal, "roll %d is open", position)
		}
		b := &pgx.Batch{}
		b.Queue(config.LockPatience)
		for _, table := range []string{set.Tables.Task(position), set.Tables.Ready(position)} {
			b.Queue(sealTable(set, table))
		}
		b.Queue(set.Tables.SQL(0, `UPDATE {rolls} SET sealed_at = $3
			WHERE table_set = $1 AND position = $2`), set.Name, position, s.core.Clock.Now())
		return tx.SendBatch(ctx, b).Close()
	})
	return config.UnlessBusy(true, err, "SealRoll(%q, %q, %d)", set.Tenant, set.Name, position)
}

// sealTable returns the statement that seals a table.
func sealTable(set *config.TableSet, table string) string {
	return `ALTER TABLE ` + table + ` ADD CONSTRAINT ` + postgres.Sealed +
		` FOREIGN KEY (id) REFERENCES ` + set.Tables.Qualify("sealed") + ` NOT VALID`
}

// DrainRoll ends the leases from the oldest live roll, if its ready table is sealed and empty:
// tasks are leased from the next roll on.
func (s *Upkeep) DrainRoll(ctx context.Context, set *config.TableSet) (drained bool, err error) {
	err = audit.ChangeSet(ctx, s.core, set, func(tx pgx.Tx, at config.TableSet,
		now time.Time) error {
		if at.Begin != set.Begin || at.Begin > at.End || at.Begin == at.End && !set.Closed {
			return postgres.ErrSame
		}
		var done bool
		err := tx.QueryRow(ctx, set.Tables.SQL(at.Begin, `
			SELECT sealed_at IS NOT NULL AND NOT EXISTS (SELECT FROM {ready})
			FROM {rolls} WHERE table_set = $1 AND position = $2`), set.Name, at.Begin).Scan(&done)
		if err != nil || !done {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		drained = true
		b := &pgx.Batch{}
		b.Queue(set.Tables.SQL(0, `UPDATE {sets} SET begin_pos = begin_pos + 1 WHERE name = $1`),
			set.Name)
		b.Queue(set.Tables.SQL(0, `UPDATE {rolls} SET drained_at = $3
			WHERE table_set = $1 AND position = $2`), set.Name, at.Begin, now)
		return tx.SendBatch(ctx, b).Close()
	})
	return drained && err == nil, postgres.Wrap(err, "DrainRoll(%q, %q)", set.Tenant, set.Name)
}

// ClearRoll drops the ready table of a drained roll. It reports whether it got the lock in time.
func (s *Upkeep) ClearRoll(
	ctx context.Context,
	set *config.TableSet,
	position int,
) (done bool, err error) {
	ctx = postgres.Patient(ctx)
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(config.LockPatience)
		b.Queue(`DROP TABLE IF EXISTS ` + set.Tables.Ready(position))
		b.Queue(set.Tables.SQL(0, `UPDATE {rolls} SET ready_dropped = true
			WHERE table_set = $1 AND position = $2 AND drained_at IS NOT NULL`), set.Name, position)
		return tx.SendBatch(ctx, b).Close()
	})
	return config.UnlessBusy(true, err, "ClearRoll(%q, %q, %d)", set.Tenant, set.Name, position)
}
