package store

import "github.com/jackc/pgerrcode"

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
