package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
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
// IdleRoll doesn't read the journals: there is no index on time, and after a rolled-back
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
		if err := lockSoon(ctx, tx, set, position); err != nil {
			return err
		}
		live, err := set.HasLive(ctx, tx, position)
		if err != nil || live {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		idle = true
		_, err = tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls} SET idle_since = $3,
			  remaining_since = coalesce(remaining_since, $3),
			  remaining_types =
			    CASE WHEN remaining_since IS NULL THEN '{}' ELSE remaining_types END,
			  remaining_ids = CASE WHEN remaining_since IS NULL THEN '{}' ELSE remaining_ids END
			WHERE table_set = $1 AND position = $2 AND ready_dropped AND idle_since IS NULL`),
			set.Name, position, now)
		return err
	})
	return config.UnlessBusy(idle, err, "IdleRoll(%q, %q, %d)", set.Tenant, set.Name, position)
}

// DropRoll drops the oldest roll of a table set with all its finished tasks, if it became idle at a
// time or before. With its last roll, a closed set goes, too. It takes these steps:
//
//  1. It marks the roll as being dropped. From then on no task of it can be redriven.
//  2. It deletes the rows of the tasks in tables of all rolls, a transaction for each JobBatch, and
//     the idempotency keys without another end.
//  3. It drops the tables of the roll.
//
// If a node dies in between, the next call goes on. A roll with children that are still awaited
// stays, and so do one with ends that aren't told yet, and one with a failed task that blocks tasks
// of its flow key: a redrive frees them.
func (s *Upkeep) DropRoll(
	ctx context.Context, set *config.TableSet, since time.Time,
) (dropped bool, err error) {
	ctx = postgres.Patient(ctx)
	dropping, err := s.beginDrop(ctx, set, since)
	var rows settings.TreeRows
	for more := dropping; more && err == nil; {
		more, err = s.dropTreeRows(ctx, set, &rows)
	}
	for more := dropping; more && err == nil; {
		more, err = s.dropKeys(ctx, set)
	}
	if dropping && err == nil {
		dropped, err = s.dropTables(ctx, set)
	}
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // another node just dropped the roll
		return false, nil
	}
	return config.UnlessBusy(dropped, err, "DropRoll(%q, %q)", set.Tenant, set.Name)
}

// beginDrop is the first step of DropRoll. It reports whether the roll is being dropped.
func (s *Upkeep) beginDrop(
	ctx context.Context, set *config.TableSet, since time.Time,
) (dropping bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		// The lock keeps tasks from being redriven meanwhile.
		if err := lockSoon(ctx, tx, set, set.First); err != nil {
			return err
		}
		left, err := set.Remaining(ctx, tx, set.First)
		if dropping = left.Dropping(); err != nil || dropping {
			return err
		}
		idle, err := set.IdleSince(ctx, tx, set.First)
		if err != nil || idle.IsZero() || idle.After(since) {
			return err
		}
		live, err := set.HasLive(ctx, tx, set.First)
		if err != nil || live {
			return err
		}
		needed, err := set.IsNeeded(ctx, tx, set.First)
		if err != nil || needed {
			return err
		}
		dropping = true
		return config.MarkDropping(ctx, tx, set, set.First)
	})
	return dropping && err == nil, err
}

// dropTreeRows deletes some of the rows in tables of all rolls of the tasks of a roll that is being
// dropped. It reports whether there may be more.
func (s *Upkeep) dropTreeRows(
	ctx context.Context, set *config.TableSet, rows *settings.TreeRows,
) (more bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		dropping, err := lockDropping(ctx, tx, set)
		if err != nil || !dropping {
			return err
		}
		more, err = rows.Delete(ctx, tx, set.Tables, config.TypesAtSQL,
			`r.id >= $3 AND r.id < $4`, set.Name, set.First,
			config.FirstOfRoll(set.First), config.FirstOfRoll(set.First+1))
		return err
	})
	return more, err
}

// dropKeys deletes some of the idempotency keys that stood for tasks of a roll that is being
// dropped, or of earlier ones, until they were final. Other keys go after their windows. It reports
// whether there may be more. It leaves keys that another transaction locks to the next drop.
func (s *Upkeep) dropKeys(ctx context.Context, set *config.TableSet) (more bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		dropping, err := lockDropping(ctx, tx, set)
		if err != nil || !dropping {
			return err
		}
		tag, err := tx.Exec(ctx, set.Tables.SQL(0, `
			DELETE FROM {keys} k USING (SELECT ctid FROM {keys}
			  WHERE expires_at = `+config.KeyUntilFinalSQL+` AND id < $3
			    AND type IN (SELECT name FROM {types} WHERE number IN (`+config.TypesAtSQL+`))
			  LIMIT $4 FOR UPDATE SKIP LOCKED) gone WHERE k.ctid = gone.ctid`),
			set.Name, set.First, config.FirstOfRoll(set.First+1), catalog.JobBatch)
		more = tag.RowsAffected() == catalog.JobBatch
		return err
	})
	return more, err
}

// lockDropping locks the row of the oldest roll, and reports whether it is still being dropped: a
// node of the version before knows no mark.
func lockDropping(ctx context.Context, tx pgx.Tx, set *config.TableSet) (bool, error) {
	if err := lockSoon(ctx, tx, set, set.First); err != nil {
		return false, err
	}
	left, err := set.Remaining(ctx, tx, set.First)
	return left.Dropping(), err
}

// dropTables is the last step of DropRoll.
func (s *Upkeep) dropTables(ctx context.Context, set *config.TableSet) (dropped bool, err error) {
	err = audit.ChangeSet(ctx, s.core, set, func(tx pgx.Tx, at config.TableSet,
		now time.Time) error {
		if at.First != set.First || at.First >= at.Begin {
			return postgres.ErrSame
		}
		dropping, err := lockDropping(ctx, tx, set)
		if err != nil || !dropping {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		dropped = true
		return tx.SendBatch(ctx, queueDrop(set, at, now)).Close()
	})
	return dropped, err
}

// queueDrop drops the oldest roll of a table set, with what names it.
func queueDrop(set *config.TableSet, at config.TableSet, now time.Time) *pgx.Batch {
	first := config.FirstOfRoll(at.First)
	next := config.FirstOfRoll(at.First + 1)
	b := &pgx.Batch{}
	b.Queue(config.LockPatience)
	b.Queue(set.Tables.SQL(0, `DELETE FROM {blocks} WHERE type IN (SELECT name FROM {types}
		WHERE number IN (`+config.TypesAtSQL+`)) AND id >= $3 AND id < $4`), set.Name, at.First,
		first, next)
	b.Queue(set.Tables.SQL(0, `INSERT INTO {outbox} (kind, due, type, id)
		SELECT DISTINCT 'look', $5::timestamptz, type, id FROM (
		  SELECT type, id FROM {edges} WHERE on_type IN (`+config.TypesAtSQL+`) AND on_id >= $3
		    AND on_id < $4 AND status IS NULL LIMIT $6) e`), set.Name, at.First, first, next, now,
		catalog.JobBatch)
	b.Queue(set.Tables.SQL(0, `DELETE FROM {content_cursors}
		WHERE type IN (`+config.TypesAtSQL+`) AND upto >= $3 AND upto < $4`), set.Name, at.First,
		first, next)
	b.Queue(set.Tables.SQL(0, `UPDATE {sets} SET first_pos = first_pos + 1 WHERE name = $1`),
		set.Name)
	b.Queue(set.Tables.SQL(0, `UPDATE {types} SET earlier_set = NULL
		WHERE earlier_set = $1 AND from_pos <= $2`), set.Name, at.First+1)
	b.Queue(set.Tables.SQL(0, `DELETE FROM {rolls} WHERE table_set = $1 AND position = $2`),
		set.Name, at.First)
	// First, as lists and erasures lock it before the table of the tasks.
	b.Queue(`DROP TABLE IF EXISTS ` + set.Tables.Search(at.First))
	b.Queue(`DROP TABLE ` + set.Tables.Task(at.First) + `, ` + set.Tables.Journal(at.First))
	if set.Closed && at.First == at.End {
		b.Queue(set.Tables.SQL(0, `UPDATE {types} SET earlier_set = NULL WHERE earlier_set = $1`),
			set.Name)
		b.Queue(set.Tables.SQL(0, `DELETE FROM {sets} WHERE name = $1`), set.Name)
	}
	return b
}
