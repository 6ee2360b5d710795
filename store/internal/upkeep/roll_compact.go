package upkeep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

const (
	// mostRemaining is how many tasks a roll keeps when it is compacted. A roll with more live
	// tasks is trimmed instead.
	mostRemaining = 10_000
	// mostRemainingBytes is how many bytes they may take: a node keeps them in memory meanwhile.
	mostRemainingBytes = 16 << 20
	// compactAgain is after how long a roll that couldn't be compacted is tried again.
	compactAgain = time.Hour
	// tidySteps is after how many small steps CompactRoll leaves the next ones to its next call.
	tidySteps = 50
)

// errRemaining ends a step of CompactRoll that erases nothing: too much remains.
var errRemaining = errors.New("too much of the roll remains")

// MarkRemaining notes which tasks of a cleared roll are live, if they are few: from now on there
// are events of these only, until a redrive. It reports whether it noted them.
func (s *Upkeep) MarkRemaining(
	ctx context.Context,
	set *config.TableSet,
	position int,
) (marked bool, err error) {
	const most = mostRemaining + 1
	live, err := set.LiveTasks(ctx, s.core.DB(set.Tenant), position, most) // first without a lock
	if len(live.IDs) == most || config.RolledOn(err) {
		return false, nil
	}
	if err != nil {
		return config.UnlessBusy(false, err, "MarkRemaining(%q, %q, %d)", set.Tenant, set.Name,
			position)
	}
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		// The lock keeps tasks from being redriven meanwhile.
		if err := lockSoon(ctx, tx, set, position); err != nil {
			return err
		}
		live, err := set.LiveTasks(ctx, tx, position, most)
		if err != nil || len(live.IDs) == 0 || len(live.IDs) == most {
			return err
		}
		left, err := set.Remaining(ctx, tx, position)
		if err != nil || !left.Since.IsZero() {
			return err
		}
		marked = true
		return saveRemaining(ctx, tx, set, position,
			config.Remaining{Since: s.core.Clock.Now(), TaskRows: live})
	})
	return config.UnlessBusy(marked, err, "MarkRemaining(%q, %q, %d)", set.Tenant, set.Name,
		position)
}

// lockSoon locks the row of a roll against redrives, unless it takes too long.
func lockSoon(ctx context.Context, tx pgx.Tx, set *config.TableSet, position int) error {
	if _, err := tx.Exec(ctx, config.LockPatience); err != nil {
		return err
	}
	return config.LockRoll(ctx, tx, set, position, "UPDATE")
}

// CompactRoll makes the tables of a cleared roll anew without the tasks that had ended by a time.
// It leaves the tasks that MarkRemaining noted, by then or earlier, the tasks on which live ones
// depend, and tasks that block their flow key. It does nothing if too many must remain, or if live
// tasks need children of the roll: then the roll is trimmed, and CompactRoll is due again in an
// hour, or after another retention if noted tasks ended. What erased tasks have in tables of all
// rolls is deleted afterwards, in small steps; if some are left, the next call goes on.
func (s *Upkeep) CompactRoll(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) (compacted bool, err error) {
	ctx = postgres.Patient(ctx)
	compacted, err = s.eraseEnded(ctx, set, position, since)
	if errors.Is(err, errRemaining) {
		err = s.postpone(ctx, set, position, since.Add(compactAgain))
	}
	var rows settings.TreeRows
	for step := 0; step < tidySteps && err == nil; step++ {
		var more bool
		if more, err = s.tidyStep(ctx, set, position, &rows); !more {
			break
		}
		compacted = true
	}
	return config.UnlessBusy(compacted, err, "CompactRoll(%q, %q, %d)", set.Tenant, set.Name,
		position)
}

// postpone makes CompactRoll leave a roll as it is for longer: until tasks are old enough that had
// ended by a time. Meanwhile the roll is trimmed. If noted tasks ended, or a node of the version
// before redrove one, it notes the live ones anew.
func (s *Upkeep) postpone(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) error {
	return pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		if err := lockSoon(ctx, tx, set, position); err != nil {
			return err
		}
		left, err := set.Remaining(ctx, tx, position)
		if err != nil || left.Since.IsZero() {
			return err
		}
		live, err := set.LiveTasks(ctx, tx, position, mostRemaining+1)
		if err != nil {
			return err
		}
		if left.Since = since; !sameTasks(live.IDs, left.IDs) {
			left = config.Remaining{Since: s.core.Clock.Now(), TaskRows: live}
		}
		if len(left.IDs) > mostRemaining {
			left = config.Remaining{}
		}
		if err := saveRemaining(ctx, tx, set, position, left); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls} SET trim_at = $3
			WHERE table_set = $1 AND position = $2 AND trim_at IS NULL`), set.Name, position,
			s.core.Clock.Now())
		return err
	})
}

// sameTasks reports whether the same ids are in two lists, in any order.
func sameTasks(a, b []int64) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// saveRemaining writes the only tasks of a roll that were live since a time; zero: that isn't
// known.
func saveRemaining(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, left config.Remaining,
) error {
	_, err := tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls}
		SET remaining_since = $3, remaining_types = $4, remaining_ids = $5
		WHERE table_set = $1 AND position = $2 AND ready_dropped`), set.Name, position,
		postgres.OrNull(left.Since), left.Types, left.IDs)
	return err
}

// eraseEnded erases the tasks of a roll that had ended by a time, in one transaction.
func (s *Upkeep) eraseEnded(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) (erased bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		if err := lockSoon(ctx, tx, set, position); err != nil {
			return err
		}
		left, err := set.Remaining(ctx, tx, position)
		waits := left.Since.IsZero() || left.Since.After(since)
		if err != nil || waits || left.Untidy() || left.Dropping() {
			return err
		}
		if err := s.addNeeded(ctx, tx, set, position, &left.TaskRows); err != nil {
			return err
		}
		rest, err := readRest(ctx, tx, set, position, left.TaskRows)
		if err != nil {
			return err
		}
		if !rest.shrinks { // noted tasks that ended are kept for another retention
			live, err := set.LiveTasks(ctx, tx, position, mostRemaining)
			if err != nil {
				return err
			}
			return saveRemaining(ctx, tx, set, position,
				config.Remaining{Since: s.core.Clock.Now(), TaskRows: live})
		}
		if err := rewriteRoll(ctx, tx, set, position, rest); err != nil {
			return err
		}
		erased = true
		b := &pgx.Batch{}
		queueForgetKeys(b, set, position, left.IDs)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return saveRemaining(ctx, tx, set, position, config.Remaining{Since: left.Since})
	})
	return erased && err == nil, err
}

// addNeeded adds the tasks of the roll that other tasks need. It fails with errRemaining if no task
// can go.
func (s *Upkeep) addNeeded(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, left *config.TaskRows,
) error {
	live, err := set.LiveTasks(ctx, tx, position, mostRemaining+1)
	if err != nil {
		return err
	}
	if !containsAll(left.IDs, live.IDs) { // a node of the version before redrove one
		return errRemaining
	}
	needed, err := set.NeedsChildren(ctx, tx, position, left.IDs)
	if err != nil {
		return err
	}
	if needed {
		return errRemaining
	}
	if err := set.AddDependencies(ctx, tx, position, left); err != nil {
		return err
	}
	if err := set.AddUnfollowed(ctx, tx, position, left); err != nil {
		return err
	}
	if err := set.AddBlockers(ctx, tx, position, left); err != nil {
		return err
	}
	if len(left.IDs) > mostRemaining {
		return errRemaining
	}
	return nil
}

// containsAll reports whether ids are all among others.
func containsAll(all, ids []int64) bool {
	known := make(map[int64]bool, len(all))
	for _, id := range all {
		known[id] = true
	}
	return !slices.ContainsFunc(ids, func(id int64) bool { return !known[id] })
}

// queueForgetKeys adds the deletion of the idempotency keys of a roll's tasks but for some.
func queueForgetKeys(b *pgx.Batch, set *config.TableSet, position int, remaining []int64) {
	b.Queue(set.Tables.SQL(0, `DELETE FROM {keys} WHERE type IN (SELECT name FROM {types}
		WHERE number IN (`+config.TypesAtSQL+`)) AND id >= $3 AND id < $4 AND id <> ALL ($5)`),
		set.Name, position, config.FirstOfRoll(position), config.FirstOfRoll(position+1), remaining)
}

// tidyStep deletes some of what erased tasks of a roll left in tables of all rolls. It reports
// whether there may be more.
func (s *Upkeep) tidyStep(
	ctx context.Context, set *config.TableSet, position int, rows *settings.TreeRows,
) (more bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		if err := lockSoon(ctx, tx, set, position); err != nil {
			return err
		}
		left, err := set.Remaining(ctx, tx, position)
		if err != nil || !left.Untidy() {
			return err
		}
		more, err = rows.Delete(ctx, tx, set.Tables, config.TypesAtSQL,
			`r.id >= $3 AND r.id < $4 AND NOT EXISTS (
			  SELECT FROM `+set.Tables.Task(position)+` t WHERE t.type = r.type AND t.id = r.id)`,
			set.Name, position, config.FirstOfRoll(position), config.FirstOfRoll(position+1))
		if err != nil || more {
			return err
		}
		// Nothing has happened in an idle roll since it became idle.
		_, err = tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls} SET remaining_since = idle_since,
			  remaining_types = CASE WHEN idle_since IS NOT NULL THEN '{}'::int[] END,
			  remaining_ids = CASE WHEN idle_since IS NOT NULL THEN '{}'::bigint[] END
			WHERE table_set = $1 AND position = $2`), set.Name, position)
		return err
	})
	return more, err
}
