package catalog

import (
	"errors"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Countable returns err or, if it says that a number of what reached the end of its column,
// CodeConflict.
func Countable(err error, what string) error {
	switch postgres.State(err) {
	case pgerrcode.NumericValueOutOfRange, pgerrcode.SequenceGeneratorLimitExceeded:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"%s can't be counted any further; the limit is 2147483647", what)
	}
	return err
}

// isDataError reports whether Postgres refused the data of a statement: it would refuse the
// same data again.
func isDataError(err error) bool {
	state := postgres.State(err)
	if RolledOn(err) {
		return false
	}
	return pgerrcode.IsDataException(state) ||
		pgerrcode.IsIntegrityConstraintViolation(state) && state != pgerrcode.UniqueViolation ||
		state == pgerrcode.StatementTooComplex || state == pgerrcode.ProgramLimitExceeded
}

// isRefused reports whether Postgres refused a statement for want of a right: the role fence
// has held, and another try would be refused too.
func isRefused(err error) bool { return postgres.State(err) == pgerrcode.InsufficientPrivilege }

// IsDataError reports whether Postgres refused the data of a statement, so that the same data
// would be refused again.
func IsDataError(err error) bool { return isDataError(err) }

// IsRefused reports whether Postgres refused a statement for want of a right.
func IsRefused(err error) bool { return isRefused(err) }

// ErrSame ends a transaction that would change nothing.
var ErrSame = errors.New("there is nothing to change")

// ErrDry ends the transaction of a dry run.
var ErrDry = errors.New("a dry run changes nothing")

// ErrIdle ends a transaction that has written nothing.
var ErrIdle = errors.New("there was nothing to do")
