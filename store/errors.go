package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
)

// sqlState returns the SQLSTATE of err, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isDataError tells whether Postgres refused the data of a statement, so that
// the same data would be refused again.
func isDataError(err error) bool {
	state := sqlState(err)
	if rolledOn(err) {
		return false
	}
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") && state != "23505" || state == "54001" || state == "54000"
}

// isRefused tells whether Postgres refused a statement for want of a right: the fence
// between tenants has held, and another try would be refused too.
func isRefused(err error) bool { return sqlState(err) == pgerrcode.InsufficientPrivilege }

// IsDataError reports whether Postgres refused the data of a statement, so that the same data
// would be refused again.
func IsDataError(err error) bool { return isDataError(err) }

// IsRefused reports whether Postgres refused a statement for want of a right.
func IsRefused(err error) bool { return isRefused(err) }

// RolledOn reports whether the type's rolls have moved on: a statement met a table that was
// sealed or dropped.
func RolledOn(err error) bool { return rolledOn(err) }

// isReadOnly reports whether Postgres takes no writes: it is a standby, or was told to.
func isReadOnly(err error) bool { return sqlState(err) == pgerrcode.ReadOnlySQLTransaction }

// isPassing reports whether a database error has to do with the state of the server, not
// with what it was asked: the same may go well a moment later, there or on another server.
func isPassing(err error) bool {
	state := sqlState(err)
	return state == "" || isReadOnly(err) || state == pgerrcode.LockNotAvailable ||
		pgerrcode.IsConnectionException(state) || pgerrcode.IsInsufficientResources(state) ||
		pgerrcode.IsOperatorIntervention(state) || // it ends, starts, or stopped the statement
		pgerrcode.IsSystemError(state) || pgerrcode.IsTransactionRollback(state) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*pgconn.ConnectError))
}

// wrap adds the operation to a database error. What the database can't do now is
// CodeUnavailable, safe to try again, and so is whatever it says to a new connection;
// anything else is CodeInternal.
func wrap(err error, op string, args ...any) error {
	var known *asyncflow.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	out := &asyncflow.Error{Code: asyncflow.CodeInternal, Op: fmt.Sprintf(op, args...), Err: err}
	if isPassing(err) {
		out.Code, out.Message = asyncflow.CodeUnavailable, "the database can't be reached or is busy; try again"
	}
	return out
}

// connectError says in one line why there is no connection and what to do.
func connectError(rawURL string, err error) error {
	host := "the database"
	if u, parseErr := url.Parse(rawURL); parseErr == nil && u.Host != "" {
		host = u.Host + u.Path
	}
	unavailable := func(format string, args ...any) error {
		return asyncflow.Errorf(asyncflow.CodeUnavailable, format, args...)
	}
	var known *asyncflow.Error
	switch state := sqlState(err); {
	case errors.As(err, &known):
		return known
	case state == "28P01" || state == "28000":
		return unavailable("%s refused the user or the password: check DATABASE_URL", host)
	case state == "3D000":
		return unavailable("%s: there is no such database: create it, or check DATABASE_URL", host)
	case strings.Contains(err.Error(), "cannot parse"):
		return unavailable("DATABASE_URL is not a Postgres URL such as postgres://user:password@host:5432/database")
	}
	return unavailable("can't reach Postgres at %s (%s): start it, or check DATABASE_URL", host, lastReason(err))
}

// lastReason returns the innermost cause of a failure to connect, in one line:
// the driver lists every address that it tried.
func lastReason(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	last := lines[len(lines)-1]
	if i := strings.LastIndex(last, ": "); i >= 0 {
		return last[i+2:]
	}
	return last
}
