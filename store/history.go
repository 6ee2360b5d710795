package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A database may go back: a standby that lagged is promoted, a backup is restored. What was
// handed out since is not known to it, ids above all, and must not be handed out again. So each
// roll is of one history (see migration 14 of a tenant's schema), which the database names when
// numbers are taken from the roll. In another history than the roll's, the type gets a new roll
// first, whose numbers begin far from those of the history that was lost, see ADR 27.

// errOtherHistory is the error of taking numbers from a roll of another history.
var errOtherHistory error = &asyncflow.Error{Code: asyncflow.CodeUnavailable,
	RetryAfter: time.Second,
	Message:    "the database was restored or has failed over: new tables are being made; try again"}

// historyTries is how often the history may change while numbers are taken.
const historyTries = 2

// EnterHistory opens a roll of a type if the one that is open is of another history of the
// database, though those before may not be drained yet, and reports whether it was.
func (s *Store) EnterHistory(ctx context.Context, t *Type) (bool, error) {
	opened := 0
	err := s.changeRolls(ctx, t, func(tx pgx.Tx, at positions, now time.Time) error {
		var same bool
		err := tx.QueryRow(ctx,
			`SELECT history = `+t.tables.qualify("history")+`(tableoid) FROM `+t.tables.qualify("rolls")+`
			WHERE type = $1 AND position = $2`, t.Name, at.end).Scan(&same)
		if err != nil || same {
			return postgres.FirstError(err, errSame)
		}
		opened = at.end + 1
		return t.tables.openNext(ctx, tx, at, now)
	})
	if err == nil && opened > 0 {
		s.log.Warn("the database was restored or has failed over: a roll was opened, so that no id comes again",
			"tenant", t.Tenant, "type", t.Name, "roll", opened)
	}
	return err == nil && opened > 0, wrap(err, "EnterHistory(%q, %q)", t.Tenant, t.Name)
}

// numberTenant has the tasks of a new tenant begin at 1, or, if this database was in another
// history before, far from where those of a tenant of the same name began there.
func numberTenant(ctx context.Context, tx pgx.Tx, slug string) error {
	schema := quote(schemaOf(slug))
	_, err := tx.Exec(ctx,
		`UPDATE asyncflow.numbering n SET history = asyncflow.history(n.tableoid),
			first_number = `+schema+`.random_number()
		WHERE n.history <> asyncflow.history(n.tableoid)`)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx,
		`SELECT `+schema+`.number_from(first_number) FROM asyncflow.numbering WHERE first_number > 1`)
	return err
}
