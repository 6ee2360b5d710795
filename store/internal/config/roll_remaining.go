package config

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// TaskRows names rows of tasks of one table set: the numbers of their types, and their ids.
type TaskRows struct {
	Types []int32
	IDs   []int64
}

// Remaining are the only tasks of a roll that were live since a time.
type Remaining struct {
	Since time.Time // zero: that isn't known
	TaskRows
}

// Untidy reports whether the other tasks are erased, but not all that they have in tables of all
// rolls: then the remaining ones aren't known.
func (r Remaining) Untidy() bool { return !r.Since.IsZero() && r.IDs == nil && r.Types == nil }

// Dropping reports whether the roll is being dropped, see MarkDropping.
func (r Remaining) Dropping() bool { return r.IDs == nil && r.Types != nil }

// CompactAfter returns how long after its Since a roll is compacted at the earliest.
func CompactAfter(retention time.Duration) time.Duration { return max(retention, time.Hour) }

// Remaining returns the only tasks of a roll that were live lately.
func (s *TableSet) Remaining(
	ctx context.Context, tx pgx.Tx, position int,
) (left Remaining, err error) {
	var since *time.Time
	err = tx.QueryRow(ctx, s.Tables.SQL(0, `SELECT remaining_since, remaining_types, remaining_ids
		FROM {rolls} WHERE table_set = $1 AND position = $2`), s.Name, position).
		Scan(&since, &left.Types, &left.IDs)
	left.Since = postgres.OrZero(since)
	return left, err
}

// HasLive reports whether a task of a roll is live.
func (s *TableSet) HasLive(
	ctx context.Context, db postgres.Querier, position int,
) (live bool, err error) {
	found, err := s.LiveTasks(ctx, db, position, 1)
	return len(found.IDs) > 0, err
}

// LiveTasks returns the live tasks of a roll, up to a number of them.
func (s *TableSet) LiveTasks(
	ctx context.Context, db postgres.Querier, position, most int,
) (live TaskRows, err error) {
	live = TaskRows{Types: []int32{}, IDs: []int64{}} // as arrays they aren't null
	_, types, err := ReadLocations(ctx, db, s.Tenant, "")
	if err != nil {
		return live, err
	}
	// One statement reads all types with the same token tables.
	numbers := map[string][]int32{}
	tables := map[string][]string{}
	for _, l := range types {
		if l.SetAt(position).Name == s.Name && slices.Contains(l.Rolls(), position) {
			t := &Type{Location: l}
			all := TokenTables(t)
			key := strings.Join(all, ",")
			numbers[key] = append(numbers[key], l.number)
			tables[key] = all
		}
	}
	for key, all := range tables {
		selects := make([]string, len(all))
		for i, table := range all {
			selects[i] = fmt.Sprintf(`SELECT k.type, k.id FROM %s k
				WHERE k.type = t.number AND k.id >= $2 AND k.id < $3`, table)
		}
		rows, err := db.Query(ctx, `SELECT k.type, k.id FROM unnest($1::int[]) AS t (number)
			CROSS JOIN LATERAL (`+strings.Join(selects, " UNION ALL ")+`) k LIMIT $4`, numbers[key],
			FirstOfRoll(position), FirstOfRoll(position+1), most-len(live.IDs))
		if err != nil {
			return live, err
		}
		if err := live.collect(rows); err != nil || len(live.IDs) >= most {
			return live, err
		}
	}
	return live, nil
}

// collect adds rows of types and ids.
func (r *TaskRows) collect(rows pgx.Rows) error {
	var number int32
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&number, &id}, func() error {
		r.Types = append(r.Types, number)
		r.IDs = append(r.IDs, id)
		return nil
	})
	return err
}

// FirstOfRoll returns the least number of a task in a roll.
func FirstOfRoll(position int) int64 { return asyncflow.NewTaskID("", position, 0).Number }

// unfollowedSQL selects the tasks of a roll that started tasks which aren't made yet, or have
// an end that isn't told yet. $3 and $4 are its first number and that of the next roll.
const unfollowedSQL = `SELECT o.type, o.id FROM {outbox} o WHERE o.kind IN ('start', 'final')
  AND o.type IN (` + TypesAtSQL + `) AND o.id >= $3 AND o.id < $4`

// IsNeeded reports whether a roll without live tasks has children that are still awaited by their
// parents, or were joined by tasks that are live; tasks that started tasks which aren't made yet,
// or have an end that isn't told yet; or failed tasks that block other tasks of their flow key.
func (s *TableSet) IsNeeded(ctx context.Context, tx pgx.Tx, position int) (needed bool, err error) {
	err = tx.QueryRow(ctx, s.Tables.SQL(0, `SELECT EXISTS (
		  SELECT FROM {fan_outs} f, `+typeRunsSQL+`
		  WHERE NOT f.closed AND u.type IN (`+TypesAtSQL+`) AND u.first >= $3 AND u.first < $4)
		OR EXISTS (
		  SELECT FROM {fan_outs} f, `+typeRunsSQL+`
		  WHERE f.types IS NOT NULL AND u.type IN (`+TypesAtSQL+`) AND u.first >= $3
		  AND u.first < $4 AND `+parentLivesSQL+`)
		OR EXISTS (`+unfollowedSQL+`)
		OR EXISTS (
		  SELECT FROM {blocks} b JOIN {types} t ON t.name = b.type
		  JOIN {wait} w ON w.type = t.number AND w.key = b.key AND w.reason = 'flow_key'
		  WHERE t.number IN (`+TypesAtSQL+`) AND b.id >= $3 AND b.id < $4)`), s.Name, position,
		FirstOfRoll(position), FirstOfRoll(position+1)).Scan(&needed)
	if err != nil || needed {
		return needed, err
	}
	return s.joinedInLine(ctx, tx, position)
}

// typeRunsSQL has the runs of children of a fan-out f with their types, as an item of FROM.
const typeRunsSQL = `unnest(f.firsts, coalesce(f.types,
  array_fill(f.type, ARRAY[cardinality(f.firsts)]))) AS u (first, type)`

// parentLivesSQL reports whether the task of a fan-out f waits or runs.
const parentLivesSQL = `(EXISTS (SELECT FROM {wait} w WHERE w.type = f.type AND w.id = f.id)
  OR EXISTS (SELECT FROM {lease} l WHERE l.type = f.type AND l.id = f.id))`

// NeedsChildren reports whether tasks that stay need children of a roll: their parents are in older
// rolls, remain in this one, or wait for them.
func (s *TableSet) NeedsChildren(
	ctx context.Context, tx pgx.Tx, position int, remaining []int64,
) (needed bool, err error) {
	err = tx.QueryRow(ctx, s.Tables.SQL(0, `SELECT EXISTS (
		SELECT FROM {fan_outs} f, `+typeRunsSQL+`
		WHERE f.types IS NULL AND f.type IN (`+TypesAtSQL+`) AND f.id < $4
		  AND u.first >= $3 AND u.first < $4
		  AND (f.id < $3 OR NOT f.closed OR f.id = ANY ($5)))
		OR EXISTS (
		SELECT FROM {fan_outs} f, `+typeRunsSQL+`
		WHERE f.types IS NOT NULL AND u.type IN (`+TypesAtSQL+`) AND u.first >= $3 AND u.first < $4
		  AND (NOT f.closed OR f.id = ANY ($5) OR `+parentLivesSQL+`))`), s.Name,
		position, FirstOfRoll(position), FirstOfRoll(position+1), remaining).Scan(&needed)
	if err != nil || needed {
		return needed, err
	}
	return s.joinedInLine(ctx, tx, position)
}

// AddDependencies adds the tasks of a roll on which live tasks depend, of any roll and set: their
// outputs are needed. A task counts as live for that if it remains, waits or runs.
func (s *TableSet) AddDependencies(
	ctx context.Context, tx pgx.Tx, position int, remaining *TaskRows,
) error {
	rows, err := tx.Query(ctx, s.Tables.SQL(0, `SELECT DISTINCT e.on_type, e.on_id FROM {edges} e
		WHERE e.on_type IN (`+TypesAtSQL+`) AND e.on_id >= $3 AND e.on_id < $4
		  AND e.on_id <> ALL ($5) AND (e.id = ANY ($5)
		    OR EXISTS (SELECT FROM {wait} w WHERE w.type = e.type AND w.id = e.id)
		    OR EXISTS (SELECT FROM {lease} l WHERE l.type = e.type AND l.id = e.id))`), s.Name,
		position, FirstOfRoll(position), FirstOfRoll(position+1), remaining.IDs)
	if err != nil {
		return err
	}
	return remaining.collect(rows)
}

// AddUnfollowed adds the tasks of a roll that started tasks which aren't made yet, or have an end
// that isn't told yet.
func (s *TableSet) AddUnfollowed(
	ctx context.Context, tx pgx.Tx, position int, remaining *TaskRows,
) error {
	rows, err := tx.Query(ctx, s.Tables.SQL(0, unfollowedSQL+` AND o.id <> ALL ($5)
		GROUP BY o.type, o.id`), s.Name, position, FirstOfRoll(position), FirstOfRoll(position+1),
		remaining.IDs)
	if err != nil {
		return err
	}
	return remaining.collect(rows)
}

// AddBlockers adds the failed tasks of a roll that block their flow key: a redrive frees it.
func (s *TableSet) AddBlockers(
	ctx context.Context, tx pgx.Tx, position int, remaining *TaskRows,
) error {
	rows, err := tx.Query(ctx, s.Tables.SQL(0, `SELECT t.number, b.id FROM {blocks} b
		JOIN {types} t ON t.name = b.type WHERE t.number IN (`+TypesAtSQL+`)
		  AND b.id >= $3 AND b.id < $4 AND b.id <> ALL ($5)`), s.Name, position,
		FirstOfRoll(position), FirstOfRoll(position+1), remaining.IDs)
	if err != nil {
		return err
	}
	return remaining.collect(rows)
}

// TypesAtSQL selects the numbers of the types whose tasks at the position $2 are in the set $1.
const TypesAtSQL = `SELECT number FROM {types} WHERE table_set = $1 AND from_pos <= $2::int
  OR earlier_set = $1 AND from_pos > $2::int`
