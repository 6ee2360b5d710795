package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// A database may go back: a standby that lagged is promoted, or a backup is restored. It then
// doesn't know the ids that were handed out since, which must not be handed out again. So each roll
// belongs to one incarnation of the database, which the column history names. Each time numbers are
// taken from a roll, the database names its present incarnation. If that differs from the roll's,
// the table set first gets a new roll. Its numbers begin far from those of the lost incarnation,
// see ADR 27.

// errOtherIncarnation is the error of taking numbers from a roll of another incarnation.
var errOtherIncarnation error = &asyncflow.Error{Code: asyncflow.CodeUnavailable,
	RetryAfter: time.Second,
	Message: "the database was restored or has failed over: new tables are being made; try " +
		"again"}

// incarnationTries is how often the incarnation may change while numbers are taken.
const incarnationTries = 2

// EnterIncarnation opens a new roll of a table set if the open one belongs to another incarnation
// of the database, or is out of numbers, and reports whether it opened one. It doesn't wait until
// earlier rolls are drained.
func (s *Path) EnterIncarnation(ctx context.Context, set *config.TableSet) (bool, error) {
	opened := 0
	err := audit.ChangeSet(ctx, s.core, set, func(
		tx pgx.Tx, at config.TableSet, now time.Time,
	) error {
		var same bool
		err := tx.QueryRow(ctx, set.Tables.SQL(0,
			`SELECT history = `+set.Tables.Qualify("history")+`(tableoid) AND next_number < $3
			FROM {rolls} WHERE table_set = $1 AND position = $2`), set.Name, at.End,
			UsedUp).Scan(&same)
		if err != nil || same {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		opened = at.End + 1
		return at.OpenNext(ctx, tx, now)
	})
	if err == nil && opened > 0 {
		s.core.Log.Warn("the database was restored or has failed over, or a roll was full: "+
			"a roll was opened, so that no id comes again",
			"tenant", set.Tenant, "tables", set.Name, "roll", opened)
	}
	return err == nil && opened > 0,
		postgres.Wrap(err, "EnterIncarnation(%q, %q)", set.Tenant, set.Name)
}

// NumberTenant sets where the numbers of a new tenant's tasks begin: at 1 or, if this database
// was another incarnation before, far from where they began there for a tenant of this name. It
// names few functions: to find one, Postgres reads all tenants' functions of the same name.
func NumberTenant(ctx context.Context, tx pgx.Tx, slug string) error {
	var same bool
	err := tx.QueryRow(ctx, `SELECT history = asyncflow.history(tableoid) AND first_number = 1
		FROM asyncflow.numbering`).Scan(&same)
	if err != nil || same {
		return err
	}
	schema := postgres.Quote(schema.Of(slug))
	_, err = tx.Exec(ctx,
		`UPDATE asyncflow.numbering n SET history = asyncflow.history(n.tableoid),
			first_number = `+schema+`.random_number()
		WHERE n.history <> asyncflow.history(n.tableoid)`)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx,
		`SELECT `+schema+`.number_from(first_number) FROM asyncflow.numbering
			WHERE first_number > 1`)
	return err
}
