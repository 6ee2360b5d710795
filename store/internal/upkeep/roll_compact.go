package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

const (
	// mostRemaining is how many tasks a roll keeps when it is compacted. A roll with more live tasks
	// keeps all its tasks.
	mostRemaining = 10_000
	// mostRemainingBytes is how many bytes they may have: a node has them in memory meanwhile.
	mostRemainingBytes = 64 << 20
	// compactAgain is after how long a roll that couldn't be compacted is tried again.
	compactAgain = time.Hour
)

// errRemaining ends a step of CompactRoll that keeps all tasks for now.
var errRemaining = errors.New("all tasks of the roll remain")

// MarkRemaining notes which tasks of a cleared roll are live, if they are few: from now on only
// these have events, until a redrive. It reports whether it noted them.
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
	if err == nil {
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
	}
	return config.UnlessBusy(marked, err, "MarkRemaining(%q, %q, %d)", set.Tenant, set.Name, position)
}

// lockSoon locks the row of a roll against redrives, unless it takes too long.
func lockSoon(ctx context.Context, tx pgx.Tx, set *config.TableSet, position int) error {
	if _, err := tx.Exec(ctx, config.LockPatience); err != nil {
		return err
	}
	return config.LockRoll(ctx, tx, set, position, "UPDATE")
}

// CompactRoll makes the tables of a cleared roll anew without the tasks that had ended by a time. It
// leaves the tasks that MarkRemaining noted, by then or earlier, and the tasks on which these
// depend. All tasks remain if too many have to, or if tasks that remain need children of the roll:
// then CompactRoll is due again in an hour, or after another retention if noted tasks have ended.
// What tasks have in tables of all rolls is deleted first, in small steps.
func (s *Upkeep) CompactRoll(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) (compacted bool, err error) {
	ctx = postgres.Patient(ctx)
	for more := true; more && err == nil; {
		compacted, more, err = s.compactStep(ctx, set, position, since)
	}
	if errors.Is(err, errRemaining) {
		err = s.postpone(ctx, set, position, since.Add(compactAgain))
	}
	return config.UnlessBusy(compacted, err, "CompactRoll(%q, %q, %d)", set.Tenant, set.Name, position)
}

// postpone has CompactRoll keep all tasks of a roll for longer: until those are old enough that had
// ended by a time. If noted tasks have ended, or a node of the version before has redriven one, it
// notes the live ones anew.
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
		return saveRemaining(ctx, tx, set, position, left)
	})
}

// sameTasks reports whether two lists have the same ids, in any order.
func sameTasks(a, b []int64) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// saveRemaining writes the only tasks of a roll that were live since a time; zero: that isn't known.
func saveRemaining(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, left config.Remaining,
) error {
	_, err := tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls}
		SET remaining_since = $3, remaining_types = $4, remaining_ids = $5
		WHERE table_set = $1 AND position = $2 AND ready_dropped`), set.Name, position,
		postgres.OrNull(left.Since), left.Types, left.IDs)
	return err
}

// compactStep is one transaction of CompactRoll. It reports whether another one is to follow.
func (s *Upkeep) compactStep(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) (compacted, more bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) error {
		if err := lockSoon(ctx, tx, set, position); err != nil {
			return err
		}
		left, err := set.Remaining(ctx, tx, position)
		if err != nil || left.Since.IsZero() || left.Since.After(since) {
			return err
		}
		if err := s.addNeeded(ctx, tx, set, position, &left.TaskRows); err != nil {
			return err
		}
		n, err := deleteAround(ctx, tx, set, position, left.IDs)
		if more = n > 0; err != nil || more {
			return err
		}
		if err := rewriteRoll(ctx, tx, set, position, left.TaskRows); err != nil {
			return err
		}
		compacted = true
		if err := saveRemaining(ctx, tx, set, position, config.Remaining{}); err != nil {
			return err
		}
		b := &pgx.Batch{}
		queueLooks(b, set, position, left.IDs, s.core.Clock.Now())
		return tx.SendBatch(ctx, b).Close()
	})
	return compacted && err == nil, more, err
}

// addNeeded adds the tasks of the roll on which remaining ones depend. It fails if no task
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

// deleteAround deletes what the other tasks of a roll have in tables of all rolls, some rows at a
// time, and returns how many. Their idempotency keys are the last.
func deleteAround(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, remaining []int64,
) (n int, err error) {
	first := config.FirstOfRoll(position)
	next := config.FirstOfRoll(position + 1)
	n, err = settings.DeleteTreeRows(ctx, tx, set.Tables, `type IN (SELECT number FROM {types}
		WHERE table_set = $2 OR earlier_set = $2) AND id >= $3 AND id < $4 AND id <> ALL ($5)`,
		set.Name, first, next, remaining)
	if err != nil || n > 0 {
		return n, err
	}
	_, err = tx.Exec(ctx, set.Tables.SQL(0, `DELETE FROM {keys} WHERE type IN (SELECT name FROM {types}
		WHERE table_set = $1 OR earlier_set = $1) AND id >= $2 AND id < $3 AND id <> ALL ($4)`),
		set.Name, first, next, remaining)
	return 0, err
}

// rewriteRoll empties the tables of a roll but for some tasks. It fails with errRemaining if these
// are too large.
func rewriteRoll(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, remaining config.TaskRows,
) error {
	task := set.Tables.Task(position)
	journal := set.Tables.Journal(position)
	_, err := tx.Exec(ctx, `LOCK TABLE `+task+`, `+journal+` IN ACCESS EXCLUSIVE MODE`)
	if err != nil {
		return err
	}
	var size int64
	err = tx.QueryRow(ctx, `SELECT
		  (SELECT coalesce(sum(octet_length(context) + coalesce(octet_length(options::text), 0)), 0)
		  FROM (`+rowsOf(task, `$1`, `$2`)+`) t)
		+ (SELECT coalesce(sum(coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)
		    + coalesce(octet_length(options::text), 0) + 100), 0)
		  FROM (`+rowsOf(journal, `$1`, `$2`)+`) j)`, remaining.Types, remaining.IDs).Scan(&size)
	if err != nil {
		return err
	}
	if size > mostRemainingBytes {
		return errRemaining
	}
	kept := map[string][]byte{}
	for _, table := range []string{task, journal} {
		rows, err := postgres.CopyOut(ctx, tx, rowsOf(table, array(remaining.Types),
			array(remaining.IDs)))
		if err != nil {
			return err
		}
		kept[table] = rows
	}
	b := &pgx.Batch{}
	b.Queue(`ALTER TABLE ` + task + ` DROP CONSTRAINT ` + postgres.Sealed)
	b.Queue(`TRUNCATE ` + task + `, ` + journal)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	for table, rows := range kept {
		if err := postgres.CopyFrozen(ctx, tx, table, rows); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, sealTable(set, task))
	return err
}

// rowsOf selects the rows of tasks from a table of their roll, by its index. types and ids are
// expressions.
func rowsOf(table, types, ids string) string {
	return fmt.Sprintf(`SELECT t.* FROM unnest(%s::int[], %s::bigint[]) AS u (type, id),
		LATERAL (SELECT * FROM %s t WHERE t.type = u.type AND t.id = u.id OFFSET 0) t`,
		types, ids, table)
}

// array returns numbers as an array in SQL.
func array[N int32 | int64](numbers []N) string {
	all := make([]string, len(numbers))
	for i, n := range numbers {
		all[i] = strconv.FormatInt(int64(n), 10)
	}
	return `'{` + strings.Join(all, ",") + `}'`
}
