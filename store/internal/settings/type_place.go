package settings

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A tenant's types share a table set. A type has a set of its own if it asks for one, by a
// roll_rows, roll_age or retention that isn't the default, or if it is busy. It moves from one set
// to the other between two tasks: new tasks go to the new set, ready rows too, and nothing is
// copied. Until the ready tables that it left are drained, its leases look at both; its finished
// tasks stay there for the retention.

// OwnSetTasks is how many tasks of a type in the open roll of the shared set make it busy.
const OwnSetTasks = 100_000

// AsksForOwnSet reports whether a type has settings that only tables of its own can have.
func AsksForOwnSet(t asyncflow.TaskType) bool {
	return t.RollRows != asyncflow.DefaultRollRows ||
		t.RollAge.Std() != asyncflow.DefaultRollAge ||
		t.Retention.Std() != asyncflow.DefaultRetention
}

// ends are the last positions that matter for the next one of a type.
type ends struct {
	shared  int // of the shared set; 0: there is none yet
	retired int // of earlier types, or tenants, of that name
	all     int // of all sets
}

func readEnds(ctx context.Context, tx pgx.Tx, tenant, name string) (e ends, err error) {
	err = tx.QueryRow(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT coalesce(max(end_pos) FILTER (WHERE name = ''), 0),
		  coalesce((SELECT max(end_pos) FROM {retired} WHERE name IN ($1, $2)), 0),
		  greatest(max(end_pos), (SELECT max(end_pos) FROM {retired}), 0)
		FROM {sets}`), name, everyType).Scan(&e.shared, &e.retired, &e.all)
	return e, err
}

// chooseSet returns the set of a new type, and the first position there that may have its tasks. It
// makes the set if need be. No id that a type of that name ever had may come again.
func chooseSet(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, now time.Time,
) (set string, from int, err error) {
	e, err := readEnds(ctx, tx, tenant, t.Name)
	switch {
	case err != nil:
		return "", 0, err
	case AsksForOwnSet(t) || e.shared > 0 && e.shared <= e.retired:
		from = max(e.shared, e.retired) + 1
		_, err = config.OpenSet(ctx, tx, tenant, t.Name, from, now)
		return t.Name, from, err
	case e.shared == 0:
		_, err = config.OpenSet(ctx, tx, tenant, config.SharedSet, e.all+1, now)
		return config.SharedSet, e.all + 1, err
	}
	return config.SharedSet, e.shared, nil
}

// OwnSet gives a type of the shared set a set of its own, which gets its new tasks from then on. It
// does nothing while a set that the type had before still has finished tasks.
func (s *types) OwnSet(ctx context.Context, t *config.Type) (moved bool, err error) {
	if !t.Set().Shared() || t.Earlier != nil {
		return false, nil
	}
	err = audit.ChangeSet(ctx, s.core, t.Set(), func(
		tx pgx.Tx, at config.TableSet, now time.Time,
	) error {
		e, err := readEnds(ctx, tx, t.Tenant, t.Name)
		if err != nil {
			return err
		}
		from := max(at.End, e.retired) + 1
		if _, err := config.OpenSet(ctx, tx, t.Tenant, t.Name, from, now); err != nil {
			return err
		}
		moved = true
		return s.moveType(ctx, tx, t, t.Name, from)
	})
	return config.UnlessBusy(moved, err, "OwnSet(%q, %q)", t.Tenant, t.Name)
}

// JoinSharedSet has the new tasks of a type with a set of its own go to the shared set from then
// on. It does nothing while a set that the type had before still has finished tasks, or the type
// had later positions than the shared set has.
func (s *types) JoinSharedSet(ctx context.Context, t *config.Type) (moved bool, err error) {
	if t.Set().Shared() || t.Earlier != nil {
		return false, nil
	}
	err = audit.ChangeSet(ctx, s.core, t.Set(), func(
		tx pgx.Tx, at config.TableSet, now time.Time,
	) error {
		e, err := readEnds(ctx, tx, t.Tenant, t.Name)
		if err == nil && e.shared == 0 {
			e.shared = e.all + 1
			_, err = config.OpenSet(ctx, tx, t.Tenant, config.SharedSet, e.shared, now)
		}
		if err != nil || e.shared <= at.End || at.Begin != at.End {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		moved = true
		return s.moveType(ctx, tx, t, config.SharedSet, e.shared)
	})
	return config.UnlessBusy(moved, err, "JoinSharedSet(%q, %q)", t.Tenant, t.Name)
}

// moveType enters that a type's new tasks go to another set, from a position on.
func (s *types) moveType(
	ctx context.Context, tx pgx.Tx, t *config.Type, set string, from int,
) error {
	// Transactions that submit by SQL may lock the type's row.
	if _, err := tx.Exec(ctx, config.LockPatience); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, t.SQL(0, `UPDATE {types}
		SET table_set = $2, from_pos = $3, earlier_set = table_set
		WHERE number = $1 AND table_set = $4 AND earlier_set IS NULL`),
		t.Number(), set, from, t.Set().Name)
	if err == nil && tag.RowsAffected() == 0 { // another node has just moved or deleted it
		return postgres.ErrSame
	}
	return err
}

// BusyTypes returns the types of a tenant's shared set that have more than OwnSetTasks tasks in its
// open roll.
func (s *types) BusyTypes(
	ctx context.Context, tenant string, open config.Roll,
) (busy []*config.Type, err error) {
	if open.MaxTasks < OwnSetTasks {
		return nil, nil
	}
	rows, _ := s.core.DB(tenant).Query(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT type FROM {tallies} WHERE at >= $1 GROUP BY type HAVING sum(submitted) > $2`),
		open.OpenedAt, OwnSetTasks)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		if t := s.core.Catalog.TypesOf(tenant)[name]; t != nil && t.Set().Shared() {
			busy = append(busy, t)
		}
	}
	return busy, postgres.Wrap(err, "BusyTypes(%q)", tenant)
}
