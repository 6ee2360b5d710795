package store

import (
	"errors"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
)

// countable returns err or, if it says that a number of what has reached the end of its column,
// CodeConflict.
func countable(err error, what string) error {
	switch sqlState(err) {
	case pgerrcode.NumericValueOutOfRange, pgerrcode.SequenceGeneratorLimitExceeded:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"%s can't be counted any further; the limit is 2147483647", what)
	}
	return err
}

// isDataError reports whether Postgres refused the data of a statement: it would refuse the
// same data again.
func isDataError(err error) bool {
	state := sqlState(err)
	if rolledOn(err) {
		return false
	}
	return pgerrcode.IsDataException(state) ||
		pgerrcode.IsIntegrityConstraintViolation(state) && state != pgerrcode.UniqueViolation ||
		state == pgerrcode.StatementTooComplex || state == pgerrcode.ProgramLimitExceeded
}

// isRefused reports whether Postgres refused a statement for want of a right: the role fence
// has held, and another try would be refused too.
func isRefused(err error) bool { return sqlState(err) == pgerrcode.InsufficientPrivilege }

// IsDataError reports whether Postgres refused the data of a statement, so that the same data
// would be refused again.
func IsDataError(err error) bool { return isDataError(err) }

// IsRefused reports whether Postgres refused a statement for want of a right.
func IsRefused(err error) bool { return isRefused(err) }

// RolledOn reports whether an error comes from a roll move: a statement met a table that was
// sealed or dropped.
func RolledOn(err error) bool { return rolledOn(err) }

// errSame ends a transaction that would change nothing.
var errSame = errors.New("there is nothing to change")

// errDry ends the transaction of a dry run.
var errDry = errors.New("a dry run changes nothing")

// errIdle ends a transaction that has written nothing.
var errIdle = errors.New("there was nothing to do")
