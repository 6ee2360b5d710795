package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// DeleteTaskType drops a task type with its endpoints and its finished tasks. If cascade is true,
// its schedules go, too, and tasks that wait for its tasks end as their on_failure says. Otherwise
// it is CodeConflict while there are any; in any case while there are live tasks. Tables of its own
// are dropped; its rows in shared tables are deleted later, in small steps: see DeleteRows.
func (s *Settings) DeleteTaskType(ctx context.Context, tenant, name string, cascade bool) error {
	err := audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		if err := lockSets(ctx, tx, tenant, name); err != nil { // first, as moves of the type do
			return err
		}
		stored, err := config.ReadTaskType(ctx, tx, tenant, name, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := audit.CheckPrecondition(ctx, stored.ETag(), false); err != nil {
			return err
		}
		// All types of the tenant wait while one is stopped. So what can be known or done is
		// before.
		if err := prepareDeletion(ctx, tx, tenant, name, cascade); err != nil {
			return err
		}
		t, err := stopType(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		if err := refuseLive(ctx, tx, t, name); err != nil {
			return err
		}
		return retire(ctx, tx, t, s.core.Clock.Now())
	})
	if err != nil {
		return postgres.Wrap(err, "DeleteTaskType(%q, %q)", tenant, name)
	}
	s.core.TellFollowUp(tenant)
	return nil
}

// prepareDeletion refuses the deletion of a type with live tasks or, without cascade, one that
// schedules or live tasks need. Otherwise it deletes the type's idempotency keys.
func prepareDeletion(ctx context.Context, tx pgx.Tx, tenant, name string, cascade bool) error {
	location, err := config.ReadLocation(ctx, tx, tenant, name)
	if err != nil {
		return err
	}
	t := &config.Type{Location: location}
	if err := refuseLive(ctx, tx, t, name); err != nil {
		return err
	}
	if !cascade {
		if err := refuseScheduled(ctx, tx, tenant, name); err != nil {
			return err
		}
		if err := refuseAwaited(ctx, tx, t, tenant, name); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0,
		`DELETE FROM {keys} WHERE type = $1`), name)
	return err
}

// shownSchedules is how many schedules of a type an error names.
const shownSchedules = 10

// refuseScheduled returns an error that names the schedules of a type, if it has any.
func refuseScheduled(ctx context.Context, tx pgx.Tx, tenant, name string) error {
	rows, _ := tx.Query(ctx, `SELECT name FROM `+SchedulesOf(tenant)+`
		WHERE type = $1 ORDER BY name LIMIT $2`, name, shownSchedules+1)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return err
	}
	if len(names) > shownSchedules {
		names[shownSchedules] = "others"
	}
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"task type %s has schedules (%s): delete them first, "+
			"or with the type by cascade", name, strings.Join(names, ", "))
}

// shownDependents is how many dependents of a type an error counts.
const shownDependents = 10_000

// refuseAwaited returns CodeConflict if tasks wait for tasks of the type. Its message counts them
// by their types.
func refuseAwaited(ctx context.Context, tx pgx.Tx, t *config.Type, tenant, name string) error {
	rows, _ := tx.Query(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT y.name, count(*) FROM (
		  SELECT e.type, e.id FROM {edges} e
		  WHERE e.on_type = $1 AND e.status IS NULL AND e.on_id IS NOT NULL
		    AND `+trees.StillWaits+`
		  UNION SELECT e.type, e.id FROM {edges} e
		  WHERE e.on_type = $1 AND e.status IS NULL AND e.on_key IS NOT NULL
		    AND `+trees.StillWaits+`
		  UNION SELECT f.type, f.id FROM {fan_outs} f
		  WHERE NOT f.closed AND f.type <> $1 AND $1 = ANY (f.types)
		  LIMIT $2) w
		JOIN {types} y ON y.number = w.type GROUP BY y.name ORDER BY y.name`),
		t.Number(), shownDependents)
	var dependents []string
	var kind string
	sum, n := 0, 0
	_, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error {
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

// refuseLive returns an error if the type has live tasks, or ended ones whose children of other
// types are still to be cancelled: without their fan-outs, these would begin.
func refuseLive(ctx context.Context, tx pgx.Tx, t *config.Type, name string) error {
	stage, err := liveStage(ctx, tx, t, nil)
	if err == nil && stage != "" {
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"task type %s has live tasks (in stage %s): it can be deleted when they are final",
			name, stage)
	}
	if err != nil {
		return err
	}
	var open bool
	err = tx.QueryRow(ctx, t.SQL(0, `SELECT EXISTS (SELECT FROM {fan_outs}
		WHERE type = $1 AND NOT closed AND types IS NOT NULL)`), t.Number()).Scan(&open)
	if err == nil && open {
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"tasks that those of task type %s started and waited for are still being cancelled: "+
				"try again", name)
	}
	return err
}

// retire drops a type's own tables and its rows, and keeps its last position.
func retire(ctx context.Context, tx pgx.Tx, t *config.Type, now time.Time) error {
	if err := records.DropTallies(ctx, tx, t); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(t.SQL(0, `DELETE FROM {blocks} WHERE type = $1`), t.Name)
	trees.QueueGoneEdges(b, t, now)
	for _, table := range []string{"{claim_windows}", "{claim_stages}", "{votes}", "{voters}"} {
		b.Queue(t.SQL(0, `DELETE FROM `+table+` WHERE type = $1`), t.Number())
	}
	b.Queue(t.SQL(0, `DELETE FROM {locks} WHERE name = $1 AND number = $2`), catalog.LeaseLock,
		t.Number())
	b.Queue(t.SQL(0, leaveOperationsSQL), t.Name, now)
	b.Queue(t.SQL(0, `DELETE FROM {types} WHERE name = $1`), t.Name)
	b.Queue(t.SQL(0, `DELETE FROM {type_versions} WHERE name = $1`), t.Name)
	for _, set := range []*config.TableSet{t.Set(), t.Earlier} {
		if set != nil && !set.Shared() {
			for p := set.First; p <= set.End; p++ { // search first, as lists lock it first
				b.Queue(`DROP TABLE IF EXISTS ` + set.Tables.Search(p) + `, ` +
					set.Tables.Task(p) + `, ` + set.Tables.Journal(p) + `, ` +
					set.Tables.Ready(p))
			}
			b.Queue(t.SQL(0, `DELETE FROM {sets} WHERE name = $1`), set.Name)
			b.Queue(t.SQL(0, `INSERT INTO {retired} AS r (name, end_pos) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET end_pos = greatest(r.end_pos, excluded.end_pos)`),
				t.Name, set.End)
		}
	}
	b.Queue(t.SQL(0, `INSERT INTO {deleted} (number, name) VALUES ($1, $2)`), t.Number(), t.Name)
	return tx.SendBatch(ctx, b).Close()
}

// leaveOperationsSQL takes the operations on all types that are at the type $1, or ended there, to
// another: all operations of a type go with it. One without a next type is done.
const leaveOperationsSQL = `
UPDATE {operations} o SET type = coalesce(y.next, y.last), position = 0,
  state = CASE WHEN o.state = 'running' AND y.next IS NULL THEN 'done' ELSE o.state END,
  finished_at = CASE WHEN o.state = 'running' AND y.next IS NULL THEN $2 ELSE o.finished_at END
FROM (SELECT min(name) FILTER (WHERE name > $1) AS next, max(name) AS last FROM {types}
  WHERE name <> $1) y
WHERE o.type = $1 AND o.filter->>'all_types' = 'true' AND y.last IS NOT NULL`

// HasDeletedTypes reports whether rows of deleted types may be left in a tenant's shared tables.
func (s *Settings) HasDeletedTypes(ctx context.Context, tenant string) (has bool, err error) {
	err = s.core.DB(tenant).QueryRow(ctx,
		config.NewTables(tenant, config.SharedSet).SQL(0,
			`SELECT EXISTS (SELECT FROM {deleted})`)).Scan(&has)
	return has, postgres.Wrap(err, "HasDeletedTypes(%q)", tenant)
}

// Deleting says how far DeleteRows has come. The zero value is the beginning.
type Deleting struct {
	Rows int  // that the last call deleted
	More bool // whether there may be more now

	number int32 // of the deleted type
	from   int64 // the id from which on rows may be left
	tree   TreeRows
}

// DeleteRows deletes some rows of deleted types from a tenant's shared tables, at most JobBatch of
// each table. It goes on where an earlier call has ended: a search from the beginning would look at
// all rows that are deleted, as long as a snapshot keeps them (measured with 600,000 of them: 40 ms
// a call, otherwise 5).
func (s *Settings) DeleteRows(ctx context.Context, tenant string, at Deleting) (Deleting, error) {
	shared := config.NewTables(tenant, config.SharedSet)
	at.Rows = 0
	at.More = false
	err := s.core.Exclusively(ctx, tenant, "delete-rows", func(tx pgx.Tx, _ time.Time) error {
		b := &pgx.Batch{}
		postgres.QueueSettings(b, postgres.SearchSettings)
		var number int32
		var first, end int
		b.Queue(shared.SQL(0, `SELECT d.number, coalesce(s.first_pos, 1), coalesce(s.end_pos, 0)
			FROM {deleted} d LEFT JOIN {sets} s ON s.name = ''
			ORDER BY d.number LIMIT 1`)).QueryRow(
			func(row pgx.Row) error { return row.Scan(&number, &first, &end) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if at.number != number {
			at = Deleting{number: number}
		}
		at.from = max(at.from, asyncflow.NewTaskID("", first, 0).Number)
		at.More = true
		position := asyncflow.TaskID{Number: at.from}.Position()
		if position > end {
			return at.deleteLast(ctx, tx, shared)
		}
		return at.deleteFrom(ctx, tx, shared, position)
	})
	switch {
	// there are none, or the next run does it
	case errors.Is(err, pgx.ErrNoRows) || config.RolledOn(err):
		return Deleting{}, nil
	case err != nil:
		return Deleting{}, postgres.Wrap(err, "DeleteRows(%q)", tenant)
	}
	return at, nil
}

// deleteFrom deletes the next rows of the type from the tables of one roll.
func (d *Deleting) deleteFrom(
	ctx context.Context, tx pgx.Tx, shared *config.TableNames, position int,
) error {
	next := asyncflow.NewTaskID("", position+1, 0).Number
	var last *int64
	err := tx.QueryRow(ctx, shared.SQL(position, `SELECT max(id) FROM (SELECT id FROM {task}
		WHERE type = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4) t`), d.number, d.from, next,
		catalog.JobBatch).Scan(&last)
	if err != nil || last == nil {
		d.from = next
		return err
	}
	tag, err := tx.Exec(ctx, shared.SQL(position, `DELETE FROM {journal} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3 LIMIT $4))`),
		d.number, d.from, *last, catalog.JobBatch)
	d.Rows = int(tag.RowsAffected())
	if err != nil || d.Rows == catalog.JobBatch { // their tasks may have more
		return err
	}
	if err := d.deleteSearch(ctx, tx, shared, position, *last); err != nil {
		return err
	}
	tag, err = tx.Exec(ctx, shared.SQL(position, `DELETE FROM {task}
		WHERE type = $1 AND id BETWEEN $2 AND $3`), d.number, d.from, *last)
	d.Rows += int(tag.RowsAffected())
	d.from = *last + 1
	return err
}

// deleteSearch deletes what the next tasks of the type are found by, up to a last one.
func (d *Deleting) deleteSearch(
	ctx context.Context, tx pgx.Tx, shared *config.TableNames, position int, last int64,
) error {
	has, err := config.HasSearch(ctx, tx, shared, position)
	if err != nil || !has {
		return err
	}
	_, err = tx.Exec(ctx, shared.SQL(position, records.DeleteSearchSQL+
		`t.type = $1 AND t.id BETWEEN $2 AND $3))`), d.number, d.from, last)
	return err
}

// deleteLast deletes what is left of the type when its tasks are gone.
func (d *Deleting) deleteLast(ctx context.Context, tx pgx.Tx, shared *config.TableNames) error {
	more, err := d.tree.Delete(ctx, tx, shared, `SELECT $1::int`, `true`, d.number)
	if err != nil {
		return err
	}
	err = d.deleteSignals(ctx, tx, shared)
	if err == nil && !more && d.Rows == 0 {
		_, err = tx.Exec(ctx, shared.SQL(0, `DELETE FROM {deleted} WHERE number = $1`), d.number)
	}
	return err
}

// DeleteSignalsSQL deletes some signals of a type. Each is in one of three indexes at least; none
// has all, and without one Postgres would read the signals of all types.
const DeleteSignalsSQL = `
DELETE FROM {signals} WHERE ctid = ANY (ARRAY(
  (SELECT ctid FROM {signals} WHERE type = $1 AND NOT taken AND task IS NOT NULL
    ORDER BY type, task LIMIT $2) UNION ALL
  (SELECT ctid FROM {signals} WHERE type = $1 AND NOT taken AND task IS NULL
    ORDER BY type, key LIMIT $2) UNION ALL
  (SELECT ctid FROM {signals} WHERE type = $1 AND idempotency_key IS NOT NULL
    ORDER BY type, idempotency_key LIMIT $2) LIMIT $2))`

// deleteSignals deletes some signals of the type.
func (d *Deleting) deleteSignals(
	ctx context.Context, tx pgx.Tx, shared *config.TableNames,
) error {
	tag, err := tx.Exec(ctx, shared.SQL(0, DeleteSignalsSQL), d.number, catalog.JobBatch)
	d.Rows = d.tree.Rows + int(tag.RowsAffected())
	return err
}
