package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// IdleRoll marks a cleared roll as idle from now on if none of its tasks is live, and reports
// whether none is.
//
// Every event of a task happens while the task is live. So the roll's last event was earlier.
// IdleRoll doesn't read the journals: they have no index on time, and after a rolled-back
// transaction vacuum frees space at their beginning for new rows.
func (s *Upkeep) IdleRoll(
	ctx context.Context,
	set *config.TableSet,
	position int,
) (idle bool, err error) {
	live, err := set.HasLive(ctx, s.core.DB(set.Tenant), position) // first without a lock
	if live || config.RolledOn(err) {
		return false, nil
	}
	if err != nil {
		return false, postgres.Wrap(err, "IdleRoll(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	err = audit.ChangeSet(ctx, s.core, set, func(tx pgx.Tx, _ config.TableSet,
		now time.Time) error {
		// The lock keeps tasks from being redriven meanwhile.
		if err := config.LockRoll(ctx, tx, set, position, "UPDATE"); err != nil {
			return err
		}
		live, err := set.HasLive(ctx, tx, position)
		if err != nil || live {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		idle = true
		_, err = tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls} SET idle_since = $3,
			  remaining_since = coalesce(remaining_since, $3),
			  remaining_types = CASE WHEN remaining_since IS NULL THEN '{}' ELSE remaining_types END,
			  remaining_ids = CASE WHEN remaining_since IS NULL THEN '{}' ELSE remaining_ids END
			WHERE table_set = $1 AND position = $2 AND ready_dropped AND idle_since IS NULL`),
			set.Name, position, now)
		return err
	})
	return idle && err == nil, postgres.Wrap(err, "IdleRoll(%q, %q, %d)", set.Tenant, set.Name,
		position)
}

// DropRoll drops the oldest roll of a table set with all its finished tasks, if it became idle at a
// time or before. With its last roll, a closed set goes, too. What the tasks have in tables of all
// rolls is deleted first, in small steps.
func (s *Upkeep) DropRoll(ctx context.Context, set *config.TableSet, since time.Time) (
	dropped bool, err error,
) {
	ctx = postgres.Patient(ctx)
	for more := true; more && err == nil; {
		dropped, more, err = s.dropStep(ctx, set, since)
	}
	return config.UnlessBusy(dropped, err, "DropRoll(%q, %q)", set.Tenant, set.Name)
}

// dropStep is one transaction of DropRoll. It reports whether another one is to follow.
func (s *Upkeep) dropStep(ctx context.Context, set *config.TableSet, since time.Time) (
	dropped, more bool, err error,
) {
	err = audit.ChangeSet(ctx, s.core, set, func(tx pgx.Tx, at config.TableSet,
		now time.Time) error {
		if at.First != set.First || at.First >= at.Begin {
			return postgres.ErrSame
		}
		if err := config.LockRoll(ctx, tx, set, at.First, "UPDATE"); err != nil {
			return err
		}
		idle, err := set.IdleSince(ctx, tx, at.First)
		if err != nil || idle.IsZero() || idle.After(since) {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		live, err := set.HasLive(ctx, tx, at.First)
		if err != nil || live {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		if awaited, err := set.HasChildren(ctx, tx, at.First); err != nil || awaited {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		first := config.FirstOfRoll(at.First)
		next := config.FirstOfRoll(at.First + 1)
		n, err := settings.DeleteTreeRows(ctx, tx, set.Tables,
			`type IN (`+config.TypesAtSQL+`) AND id >= $3 AND id < $4`, set.Name, at.First, first, next)
		if more = n > 0; err != nil || more {
			return err
		}
		dropped = true
		b := &pgx.Batch{}
		b.Queue(config.LockPatience)
		b.Queue(set.Tables.SQL(0, `UPDATE {sets} SET first_pos = first_pos + 1 WHERE name = $1`),
			set.Name)
		b.Queue(set.Tables.SQL(0, `UPDATE {types} SET earlier_set = NULL
			WHERE earlier_set = $1 AND from_pos <= $2`), set.Name, at.First+1)
		b.Queue(set.Tables.SQL(0, `DELETE FROM {rolls} WHERE table_set = $1 AND position = $2`),
			set.Name,
			at.First)
		b.Queue(`DROP TABLE ` + set.Tables.Task(at.First) + `, ` + set.Tables.Journal(at.First))
		b.Queue(set.Tables.SQL(0, `INSERT INTO {outbox} (kind, due, type, id)
			SELECT DISTINCT 'look', $5::timestamptz, type, id FROM (
			  SELECT type, id FROM {edges} WHERE on_type IN (`+config.TypesAtSQL+`) AND on_id >= $3
			    AND on_id < $4 AND status IS NULL LIMIT $6) e`), set.Name, at.First, first, next, now,
			catalog.JobBatch)
		if set.Closed && at.First == at.End {
			b.Queue(set.Tables.SQL(0,
				`UPDATE {types} SET earlier_set = NULL WHERE earlier_set = $1`),
				set.Name)
			b.Queue(set.Tables.SQL(0, `DELETE FROM {sets} WHERE name = $1`), set.Name)
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return dropped, more, err
}
