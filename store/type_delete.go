package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// DeleteTaskType drops a task type with its endpoints and its finished tasks. If cascade is true,
// its schedules go, too, and tasks that wait for its tasks end as their on_failure says. Otherwise
// it is CodeConflict while there are any; in any case while there are live tasks. Tables of its own
// are dropped; its rows in shared tables are deleted later, in small steps: see DeleteRows.
func (s *settings) DeleteTaskType(ctx context.Context, tenant, name string, cascade bool) error {
	err := s.change(ctx, tenant, func(tx pgx.Tx) error {
		if err := lockSets(ctx, tx, tenant, name); err != nil { // first, as moves of the type do
			return err
		}
		stored, err := readTaskType(ctx, tx, tenant, name, "FOR UPDATE")
		if err == nil {
			err = checkPrecondition(ctx, stored.ETag(), false)
		}
		if err != nil {
			return err
		}
		// All types of the tenant wait while one is stopped. So what can be known or done is before.
		at, err := readLocation(ctx, tx, tenant, name)
		if err == nil {
			err = refuseLive(ctx, tx, &Type{location: at}, name)
		}
		if err == nil && !cascade {
			err = refuseScheduled(ctx, tx, tenant, name)
		}
		if err == nil && !cascade {
			err = refuseAwaited(ctx, tx, &Type{location: at}, tenant, name)
		}
		if err == nil {
			_, err = tx.Exec(ctx, newTables(tenant, sharedSet).at(0, `DELETE FROM {keys} WHERE type = $1`),
				name)
		}
		if err != nil {
			return err
		}
		t, err := stopType(ctx, tx, tenant, name)
		if err == nil {
			err = refuseLive(ctx, tx, t, name)
		}
		if err != nil {
			return err
		}
		return retire(ctx, tx, t, s.Clock.Now())
	})
	if err == nil {
		s.tellFollowUp(tenant)
	}
	return wrap(err, "DeleteTaskType(%q, %q)", tenant, name)
}

// shownSchedules is how many schedules of a type an error names.
const shownSchedules = 10

// refuseScheduled returns an error that names the schedules of a type, if it has any.
func refuseScheduled(ctx context.Context, tx pgx.Tx, tenant, name string) error {
	rows, err := tx.Query(ctx, `SELECT name FROM `+schedulesOf(tenant)+`
		WHERE type = $1 ORDER BY name LIMIT $2`, name, shownSchedules+1)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return err
	}
	if len(names) > shownSchedules {
		names[shownSchedules] = "others"
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "task type %s has schedules (%s): delete them first, "+
		"or with the type by cascade", name, strings.Join(names, ", "))
}

// shownDependents is how many dependents of a type an error counts.
const shownDependents = 10_000

// refuseAwaited returns CodeConflict if tasks wait for tasks of the type. Its message counts them
// by their types.
func refuseAwaited(ctx context.Context, tx pgx.Tx, t *Type, tenant, name string) error {
	rows, err := tx.Query(ctx, newTables(tenant, sharedSet).at(0, `
		SELECT y.name, count(*) FROM (
		  SELECT e.type, e.id FROM {edges} e
		  WHERE e.on_type = $1 AND e.status IS NULL AND e.on_id IS NOT NULL AND `+stillWaits+`
		  UNION SELECT e.type, e.id FROM {edges} e
		  WHERE e.on_type = $1 AND e.status IS NULL AND e.on_key IS NOT NULL AND `+stillWaits+`
		  LIMIT $2) w
		JOIN {types} y ON y.number = w.type GROUP BY y.name ORDER BY y.name`),
		t.number, shownDependents)
	if err != nil {
		return err
	}
	var dependents []string
	var kind string
	sum, n := 0, 0
	_, err = pgx.ForEachRow(rows, []any{&kind, &n}, func() error {
		sum += n
		dependents = append(dependents, fmt.Sprintf("%d of %s", n, kind))
		return nil
	})
	if err != nil || sum == 0 {
		return err
	}
	least := ""
	if sum == shownDependents {
		least = "at least "
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "tasks wait for those of task type %s (%s%s): "+
		"delete it when they have ended, or by cascade; then each does what its on_failure says",
		name, least, strings.Join(dependents, ", "))
}

// refuseLive returns an error if the type has live tasks.
func refuseLive(ctx context.Context, tx pgx.Tx, t *Type, name string) error {
	stage, err := liveStage(ctx, tx, t, nil)
	if err == nil && stage != "" {
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"task type %s has live tasks (in stage %s): it can be deleted when they are final", name, stage)
	}
	return err
}

// retire drops a type's own tables and its rows, and keeps its last position.
func retire(ctx context.Context, tx pgx.Tx, t *Type, now time.Time) error {
	if err := dropTallies(ctx, tx, t); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(t.at(0, `DELETE FROM {blocks} WHERE type = $1`), t.Name)
	queueGoneEdges(b, t, now)
	for _, table := range []string{"{claim_windows}", "{claim_stages}", "{votes}", "{voters}"} {
		b.Queue(t.at(0, `DELETE FROM `+table+` WHERE type = $1`), t.number)
	}
	b.Queue(t.at(0, `DELETE FROM {locks} WHERE name = $1 AND number = $2`), leaseLock, t.number)
	b.Queue(t.at(0, `DELETE FROM {types} WHERE name = $1`), t.Name)
	for _, set := range []*TableSet{t.set, t.earlier} {
		if set != nil && !set.Shared() {
			for p := set.First; p <= set.End; p++ {
				b.Queue(`DROP TABLE IF EXISTS ` + set.tables.task(p) + `, ` + set.tables.journal(p) + `, ` +
					set.tables.ready(p))
			}
			b.Queue(t.at(0, `DELETE FROM {sets} WHERE name = $1`), set.Name)
			b.Queue(t.at(0, `INSERT INTO {retired} AS r (name, end_pos) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET end_pos = greatest(r.end_pos, excluded.end_pos)`),
				t.Name, set.End)
		}
	}
	b.Queue(t.at(0, `INSERT INTO {deleted} (number, name) VALUES ($1, $2)`), t.number, t.Name)
	return tx.SendBatch(ctx, b).Close()
}

// HasDeletedTypes reports whether rows of deleted types may be left in a tenant's shared tables.
func (s *settings) HasDeletedTypes(ctx context.Context, tenant string) (has bool, err error) {
	err = s.of(tenant).QueryRow(ctx,
		newTables(tenant, sharedSet).at(0, `SELECT EXISTS (SELECT FROM {deleted})`)).Scan(&has)
	return has, wrap(err, "HasDeletedTypes(%q)", tenant)
}

// Deleting says how far DeleteRows has come. The zero value is the beginning.
type Deleting struct {
	Rows int  // that the last call deleted
	More bool // whether there may be more now

	number int32 // of the deleted type
	from   int64 // the id from which on rows may be left
}

// DeleteRows deletes some rows of deleted types from a tenant's shared tables, at most JobBatch of
// each table. It goes on where an earlier call has ended: a search from the beginning would look at
// all rows that are deleted, as long as a snapshot keeps them (measured with 600,000 of them: 40 ms
// a call, otherwise 5).
func (s *settings) DeleteRows(ctx context.Context, tenant string, at Deleting) (Deleting, error) {
	shared := newTables(tenant, sharedSet)
	at.Rows, at.More = 0, false
	err := s.exclusively(ctx, tenant, "delete-rows", func(tx pgx.Tx, _ time.Time) error {
		b := &pgx.Batch{}
		queueSettings(b, searchSettings)
		var number int32
		var first, end int
		b.Queue(shared.at(0, `SELECT d.number, coalesce(s.first_pos, 1), coalesce(s.end_pos, 0)
			FROM {deleted} d LEFT JOIN {sets} s ON s.name = '' ORDER BY d.number LIMIT 1`)).QueryRow(
			func(row pgx.Row) error { return row.Scan(&number, &first, &end) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if at.number != number {
			at = Deleting{number: number}
		}
		at.from, at.More = max(at.from, asyncflow.NewTaskID("", first, 0).Number), true
		position := asyncflow.TaskID{Number: at.from}.Position()
		if position > end {
			return at.deleteLast(ctx, tx, shared)
		}
		return at.deleteFrom(ctx, tx, shared, position)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows) || rolledOn(err): // there are none, or the next run does it
		return Deleting{}, nil
	case err != nil:
		return Deleting{}, wrap(err, "DeleteRows(%q)", tenant)
	}
	return at, nil
}

// deleteFrom deletes the next rows of the type from the tables of one roll.
func (d *Deleting) deleteFrom(ctx context.Context, tx pgx.Tx, shared *tables, position int) error {
	next := asyncflow.NewTaskID("", position+1, 0).Number
	var last *int64
	err := tx.QueryRow(ctx, shared.at(position, `SELECT max(id) FROM (SELECT id FROM {task}
		WHERE type = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4) t`), d.number, d.from, next,
		JobBatch).Scan(&last)
	if err != nil || last == nil {
		d.from = next
		return err
	}
	tag, err := tx.Exec(ctx, shared.at(position, `DELETE FROM {journal} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3 LIMIT $4))`),
		d.number, d.from, *last, JobBatch)
	d.Rows = int(tag.RowsAffected())
	if err != nil || d.Rows == JobBatch { // their tasks may have more
		return err
	}
	tag, err = tx.Exec(ctx, shared.at(position, `DELETE FROM {task}
		WHERE type = $1 AND id BETWEEN $2 AND $3`), d.number, d.from, *last)
	d.Rows += int(tag.RowsAffected())
	d.from = *last + 1
	return err
}

// deleteLast deletes what is left of the type when its tasks are gone.
func (d *Deleting) deleteLast(ctx context.Context, tx pgx.Tx, shared *tables) error {
	n, err := deleteTreeRows(ctx, tx, shared, `type = $2`, d.number)
	if d.Rows = n; err == nil && n == 0 {
		_, err = tx.Exec(ctx, shared.at(0, `DELETE FROM {deleted} WHERE number = $1`), d.number)
	}
	return err
}

// deleteTreeRows deletes some edges, fan-outs and past keys of tasks that are gone, at most
// JobBatch of each, and returns how many. The arguments of the condition are $2 and on.
func deleteTreeRows(
	ctx context.Context, tx pgx.Tx, t *tables, of string, args ...any,
) (n int, err error) {
	for _, table := range []string{"{edges}", "{fan_outs}", "{past_keys}"} {
		tag, err := tx.Exec(ctx, t.at(0, `DELETE FROM `+table+` WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM `+table+` WHERE `+of+` LIMIT $1))`), append([]any{JobBatch}, args...)...)
		if err != nil {
			return 0, err
		}
		n += int(tag.RowsAffected())
	}
	return n, nil
}
