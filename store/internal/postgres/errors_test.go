package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// What a server that stops, or that was promoted, may answer is an error after which another try is
// safe. Faults of data and of statements aren't.
func TestErrorsOfAChangingDatabaseAreUnavailable(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]asyncflow.Code{
		"25006": asyncflow.CodeUnavailable, // a standby takes no writes
		"25P02": asyncflow.CodeUnavailable, // the transaction failed
		"25P03": asyncflow.CodeUnavailable, // the transaction was idle for too long
		"26000": asyncflow.CodeUnavailable, // no such prepared statement
		"3F000": asyncflow.CodeUnavailable, // no such schema
		"40001": asyncflow.CodeUnavailable, // a conflict with recovery
		"42704": asyncflow.CodeUnavailable, // no such role
		"42883": asyncflow.CodeUnavailable, // no such function
		"42P01": asyncflow.CodeUnavailable, // no such table
		"55000": asyncflow.CodeUnavailable, // recovery is in progress
		"57P01": asyncflow.CodeUnavailable, // the server stops
		"57P03": asyncflow.CodeUnavailable, // it starts
		"XX000": asyncflow.CodeUnavailable, // a table was dropped under the statement
		"":      asyncflow.CodeUnavailable, // the connection was lost
		"22023": asyncflow.CodeInternal,
		"54000": asyncflow.CodeInternal,
		"22P05": asyncflow.CodeInternal,
		"23505": asyncflow.CodeInternal,
		"42601": asyncflow.CodeInternal,
		"42501": asyncflow.CodeInternal,
		"XX001": asyncflow.CodeInternal,
	} {
		t.Run(code, func(t *testing.T) {
			err := fmt.Errorf("in a batch: %w", &pgconn.PgError{Severity: "ERROR", Code: code})
			assert.Equal(t, want, asyncflow.CodeOf(postgres.Wrap(err, "test")))
		})
	}
	replaced := &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(postgres.Wrap(replaced, "test")))
	full := &pgconn.PgError{Code: "54000", File: "async.c"} // the queue of notifications
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(postgres.Wrap(full, "test")))
	for _, code := range []string{"22023", "42501"} {
		role := &pgconn.PgError{Code: code, Routine: "call_string_check_hook"}
		assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(postgres.Wrap(role, "test")))
		assert.False(t, postgres.IsDataException(role) || postgres.IsRefused(role), code)
	}
	for _, name := range []string{postgres.Sealed, postgres.Sealed + "_102104"} { // of a shard
		sealed := &pgconn.PgError{Code: "23503", ConstraintName: name}
		assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(postgres.Wrap(sealed, "test")))
	}
	other := &pgconn.PgError{Code: "23503", ConstraintName: "of_another"}
	assert.Equal(t, asyncflow.CodeInternal, asyncflow.CodeOf(postgres.Wrap(other, "test")))
}

// An error at a commit says that nothing stands, unless Citus has lost the worker meanwhile.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	failed := pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "XX000"}
	lost := failed
	lost.Routine = "ErrorIfPostCommitFailedShardPlacements"
	ended := failed
	ended.SeverityUnlocalized = "FATAL"
	assert.True(t, postgres.RolledBack(&failed))
	assert.False(t, postgres.RolledBack(&lost))
	assert.False(t, postgres.RolledBack(&ended))
}
