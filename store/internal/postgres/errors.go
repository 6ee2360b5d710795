package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
)

// State returns the SQLSTATE of err, or "".
func State(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// FirstError returns the first error that is not nil.
func FirstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// isReadOnly reports whether Postgres takes no writes: it is a standby, or was told to.
func isReadOnly(err error) bool { return State(err) == pgerrcode.ReadOnlySQLTransaction }

// IsPassing reports whether an error comes from the state of the server, not from what it
// was asked: the same may succeed a moment later, there or on another server.
func IsPassing(err error) bool {
	state := State(err)
	return state == "" || isReadOnly(err) || state == pgerrcode.LockNotAvailable ||
		pgerrcode.IsConnectionException(state) || pgerrcode.IsInsufficientResources(state) ||
		pgerrcode.IsOperatorIntervention(state) || // it ends, starts, or stopped the statement
		pgerrcode.IsSystemError(state) || pgerrcode.IsTransactionRollback(state) ||
		pgerrcode.IsInvalidTransactionState(state) || // it ended the transaction, or the connection
		isNotifyQueueFull(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*pgconn.ConnectError))
}

// isSettingRefused reports whether a server doesn't know the value of a setting that asyncflow
// chose by another server's word, see compression.
func isSettingRefused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == pgerrcode.InvalidParameterValue &&
		pg.Routine == "parse_and_validate_value"
}

// isNotifyQueueFull reports whether Postgres refused a commit because its queue of notifications is
// full. The whole cluster shares it, and one session that listens and doesn't read keeps it full.
func isNotifyQueueFull(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == pgerrcode.ProgramLimitExceeded && pg.File == "async.c"
}

// isChanging reports whether an error comes from a database that isn't as this program knows it.
// After a failover or a restore it may lack tables, functions or roles that this node just used;
// and a table may be dropped, or sealed, under a statement. The same works a moment later, once the
// node read what there is.
func isChanging(err error) bool {
	switch State(err) {
	case pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn, pgerrcode.UndefinedFunction,
		pgerrcode.UndefinedObject, pgerrcode.InvalidSchemaName, pgerrcode.InvalidSQLStatementName,
		pgerrcode.ObjectNotInPrerequisiteState, pgerrcode.InternalError:
		return true
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Routine == "RevalidateCachedQuery" || isRoleRefused(err) ||
		isSettingRefused(err) || IsSealed(err))
}

// Sealed is the name of the constraint that seals a table against inserts. On a shard of Citus a
// number follows.
const Sealed = "sealed"

// IsSealed reports whether a table was sealed against an insert. Citus adds the number of the shard
// to the name.
func IsSealed(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == pgerrcode.ForeignKeyViolation &&
		(pg.ConstraintName == Sealed || strings.HasPrefix(pg.ConstraintName, Sealed+"_"))
}

// IsMoving reports whether a table was locked for too long, or wasn't there, as while a tenant
// moves to another worker of Citus.
func IsMoving(err error) bool {
	state := State(err)
	return state == pgerrcode.LockNotAvailable || state == pgerrcode.UndefinedTable
}

// RolledBack reports whether the server says that a transaction has failed: nothing of it stands.
// The coordinator of Citus also says so when it has lost a worker that may have committed.
func RolledBack(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) ||
		errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" &&
			pg.Routine != "ErrorIfPostCommitFailedShardPlacements"
}

// Wrap adds the operation to a database error. An error that passes, that refuses a new connection,
// or of a database that is changing, is CodeUnavailable: another try is safe. Any other one is
// CodeInternal. An *asyncflow.Error stays as it is.
func Wrap(err error, op string, args ...any) error {
	var known *asyncflow.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	out := &asyncflow.Error{Code: asyncflow.CodeInternal, Op: fmt.Sprintf(op, args...), Err: err}
	if IsPassing(err) || isChanging(err) {
		out.Code = asyncflow.CodeUnavailable
		out.Message = "the database can't be reached or is busy; try again"
	}
	if isLoginRefused(err) {
		out.Message = "a worker of Citus doesn't let a tenant's database role log in: asyncflow " +
			"doctor says what to do"
	}
	return out
}

// isLoginRefused reports whether a worker of Citus refused a connection as the present role.
func isLoginRefused(err error) bool {
	text := fmt.Sprint(err)
	return State(err) == pgerrcode.ConnectionFailure &&
		strings.Contains(text, "connection to the remote node") &&
		(strings.Contains(text, "pg_hba.conf") || strings.Contains(text, "password") ||
			strings.Contains(text, "authentication failed") ||
			strings.Contains(text, "not permitted to log in"))
}

// ConnectError says in one line why there is no connection and what to do.
func ConnectError(rawURL string, err error) error {
	host := "the database"
	if u, parseErr := url.Parse(rawURL); parseErr == nil && u.Host != "" {
		host = u.Host + u.Path
	}
	unavailable := func(format string, args ...any) error {
		return asyncflow.Errorf(asyncflow.CodeUnavailable, format, args...)
	}
	var known *asyncflow.Error
	switch state := State(err); {
	case errors.As(err, &known):
		return known
	case isRefusedLogin(state):
		return unavailable("%s refused the user or the password: check DATABASE_URL", host)
	case state == pgerrcode.InvalidCatalogName:
		return unavailable("%s: there is no such database: create it, or check DATABASE_URL", host)
	case state == pgerrcode.ProtocolViolation && strings.Contains(err.Error(), "startup parameter"):
		return unavailable("%s is a pooler and refuses a setting of DATABASE_URL or PGOPTIONS "+
			"(%s): leave it out, or name it in the pooler's ignore_startup_parameters", host,
			message(err))
	case state != "":
		return unavailable("%s refused: %s (SQLSTATE %s)", host, message(err), state)
	case strings.Contains(err.Error(), "cannot parse"):
		return unavailable("DATABASE_URL is not a Postgres URL " +
			"such as postgres://user:password@host:5432/database")
	}
	return unavailable("can't reach Postgres at %s (%s): start it, or check DATABASE_URL",
		host, lastReason(err))
}

// ConnectErrorOr returns ConnectError for a failure to connect, and any other err as it is.
func ConnectErrorOr(err error, url string) error {
	var connect *pgconn.ConnectError
	var config *pgconn.ParseConfigError
	if errors.As(err, &connect) || errors.As(err, &config) {
		return ConnectError(url, err)
	}
	return err
}

func isRefusedLogin(state string) bool {
	return state == pgerrcode.InvalidPassword ||
		state == pgerrcode.InvalidAuthorizationSpecification
}

// message returns what the server said.
func message(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Message
	}
	return lastReason(err)
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

// Countable returns err or, if it says that a number of what reached the end of its column,
// CodeConflict.
func Countable(err error, what string) error {
	switch State(err) {
	case pgerrcode.NumericValueOutOfRange, pgerrcode.SequenceGeneratorLimitExceeded:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"%s can't be counted any further; the limit is 2147483647", what)
	}
	return err
}

// IsDataException reports whether Postgres refused a value.
func IsDataException(err error) bool {
	return pgerrcode.IsDataException(State(err)) && !isRoleRefused(err) && !isSettingRefused(err)
}

// IsRefused reports whether Postgres refused a statement for want of a right: the role fence held,
// and another try would be refused too. At the worker of a tenant it wouldn't: the next try names
// the tables that Citus shows.
func IsRefused(err error) bool {
	return State(err) == pgerrcode.InsufficientPrivilege && !isRoleRefused(err) &&
		!errors.As(err, new(*refusedPlace))
}

// ErrSame ends a transaction that would change nothing.
var ErrSame = errors.New("there is nothing to change")

// ErrDry ends the transaction of a dry run.
var ErrDry = errors.New("a dry run changes nothing")

// ErrIdle ends a transaction that wrote nothing.
var ErrIdle = errors.New("there was nothing to do")
