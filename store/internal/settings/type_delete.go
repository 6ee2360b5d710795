package settings

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
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
func (s *types) DeleteTaskType(ctx context.Context, tenant, name string, cascade bool) error {
	err := untilNoDeadlock(ctx, func() error {
		return s.deleteTaskType(ctx, tenant, name, cascade)
	})
	if err != nil {
		return postgres.Wrap(err, "DeleteTaskType(%q, %q)", tenant, name)
	}
	s.core.TellFollowUp(tenant)
	return nil
}

func (s *types) deleteTaskType(ctx context.Context, tenant, name string, cascade bool) error {
	return audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
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
}

const (
	// deadlockTries is how often a change is tried that deadlocks.
	deadlockTries = 3
	deadlockPause = 100 * time.Millisecond
)

// untilNoDeadlock makes a change in a transaction of its own, which fails as a whole, and makes it
// again if it was ended to resolve a deadlock. A move of the tenant to another worker of Citus
// locks all of the tenant's tables in an order of its own.
func untilNoDeadlock(ctx context.Context, change func() error) (err error) {
	for try := range deadlockTries {
		err = change()
		if postgres.State(err) != pgerrcode.DeadlockDetected || try == deadlockTries-1 ||
			!sleep.For(ctx, deadlockPause) {
			break
		}
	}
	return err
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
