package store

import (
	"context"
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errElsewhere tells that a pending task's token row is in none of the ready tables that
// this node knows of.
var errElsewhere = errors.New("the task is in none of the ready tables")

// rolledOn tells that a table was sealed or dropped under a statement, or that there is
// one more: the type's rolls have moved on, and this node did not know yet.
func rolledOn(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errElsewhere) || errors.As(err, &pg) &&
		(pg.Code == pgerrcode.UndefinedTable || pg.Code == pgerrcode.ForeignKeyViolation &&
			pg.ConstraintName == sealed)
}

// followTries is how often something is tried again with newer rolls.
const followTries = 3

// following runs do with a type, and again with the type as it is by now when its rolls
// have moved on. do must be safe to repeat; what it did has been rolled back. A type that
// is gone is CodeNotFound.
func (s *Store) following(ctx context.Context, t *Type, do func(*Type) error) error {
	err := do(t)
	for range followTries {
		if !rolledOn(err) {
			return err
		}
		fresh, missing := s.refreshed(ctx, t)
		if missing != nil {
			return missing
		}
		if fresh == t {
			return err
		}
		t = fresh
		err = do(t)
	}
	return err
}

// queueNewest reads which roll of a type is the newest. What it returns tells afterwards
// whether that is the one that this node knows of: else tasks of a flow key may stand in a
// ready table that it doesn't look at.
func queueNewest(b *pgx.Batch, t *Type) (onNewest func() error) {
	var end int
	b.Queue(`SELECT end_pos FROM `+t.tables.qualify("task_types")+` WHERE name = $1`,
		t.Name).QueryRow(func(row pgx.Row) error {
		// else it is looked for again, and missed
		if err := row.Scan(&end); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	return func() error {
		if end != t.End {
			return errElsewhere
		}
		return nil
	}
}

// rollsNow returns a type with its rolls as they are in a transaction. Those who look
// for a token row by themselves must not miss the newest ready table.
func rollsNow(ctx context.Context, tx pgx.Tx, t *Type) (*Type, error) {
	at, err := readPositions(ctx, tx, t.Tenant, t.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, unknownType(t.Name)
	}
	return t.withPositions(at), err
}

// refreshed returns a type as the database has it now.
func (s *Store) refreshed(ctx context.Context, t *Type) (*Type, error) {
	if err := s.Catalog.RefreshTenant(ctx, t.Tenant); err != nil {
		return nil, err
	}
	return s.Catalog.Type(t.Tenant, t.Name)
}
