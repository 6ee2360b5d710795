package config

import (
	"context"
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A roll move is a new roll of a type, or the seal or drop of an old one, that a node learns of
// only after it happened.

// ErrElsewhere is the error of a pending task without a token row in the ready tables that this
// node knows.
var ErrElsewhere = errors.New("the task is in none of the ready tables")

// RolledOn reports whether an error comes from a roll move that this node didn't know of: a
// table was sealed or dropped under a statement, or there is one more.
func RolledOn(err error) bool {
	return errors.Is(err, ErrElsewhere) || postgres.State(err) == pgerrcode.UndefinedTable ||
		postgres.IsSealed(err)
}

// IsDataError reports whether Postgres refused the data of a statement: it would refuse the same
// data again.
func IsDataError(err error) bool {
	state := postgres.State(err)
	if RolledOn(err) || postgres.IsPassing(err) {
		return false
	}
	return postgres.IsDataException(err) ||
		pgerrcode.IsIntegrityConstraintViolation(state) && state != pgerrcode.UniqueViolation ||
		state == pgerrcode.StatementTooComplex || state == pgerrcode.ProgramLimitExceeded
}

// QueueNewest queues the query of a type's newest roll. After the batch, onNewest returns
// ErrElsewhere if that is not the newest roll that this node knows: then tasks of a flow key
// may be in a ready table that the node doesn't look at.
func QueueNewest(b *pgx.Batch, t *Type) (onNewest func() error) {
	var end int
	newest := b.Queue(t.SQL(0, `SELECT s.end_pos FROM {types} t
		JOIN {sets} s ON s.name = t.table_set
		WHERE t.number = $1`), t.number)
	newest.QueryRow(func(row pgx.Row) error {
		// Without a row, FollowRolls reads the type again and finds that it is gone.
		if err := row.Scan(&end); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	return func() error {
		if end != t.End {
			return ErrElsewhere
		}
		return nil
	}
}

// RollsNow returns a type with its rolls as a transaction sees them. Callers that look for a
// single token row must not miss the newest ready table.
func RollsNow(ctx context.Context, tx pgx.Tx, t *Type) (*Type, error) {
	at, err := ReadLocation(ctx, tx, t.Tenant, t.Name)
	if err != nil {
		return t, err
	}
	return Located(t, at), nil
}
