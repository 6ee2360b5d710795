package config

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// OpenNext makes the next roll, which gets the new tasks from then on.
func (s *TableSet) OpenNext(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if err := s.openRoll(ctx, tx, s.End+1, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.Tables.SQL(0, `UPDATE {sets} SET end_pos = $2 WHERE name = $1`),
		s.Name,
		s.End+1)
	return err
}

// OpenSet makes a table set with its first roll, at a position.
func OpenSet(
	ctx context.Context, tx pgx.Tx, tenant, name string, position int, now time.Time,
) (*TableSet, error) {
	set := &TableSet{Tenant: tenant, Name: name, First: position, Begin: position, End: position,
		Tables: NewTables(tenant, name)}
	_, err := tx.Exec(ctx, set.Tables.SQL(0, `
		INSERT INTO {sets} (name, first_pos, begin_pos, end_pos)
		VALUES ($1, $2, $2, $2)`), name, position)
	if err != nil {
		return nil, err
	}
	return set, set.openRoll(ctx, tx, position, now)
}

// ReviveRoll locks a roll's row for a redrive of one of its tasks: until the transaction ends the
// roll is neither dropped nor compacted nor idle. Only the first redrive after the roll was idle,
// or had few live tasks, changes the row, so that other redrives don't wait for each other.
// CodeNotFound when the roll was dropped, or is being dropped: its tasks have lost their edges.
func ReviveRoll(ctx context.Context, tx pgx.Tx, set *TableSet, position int) error {
	for {
		_, err := tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls}
			SET idle_since = NULL, remaining_types = NULL, remaining_ids = NULL,
			  remaining_since = CASE WHEN remaining_ids IS NULL THEN remaining_since END
			WHERE table_set = $1 AND position = $2 AND (idle_since IS NOT NULL
			  OR remaining_ids IS NOT NULL) AND NOT (`+droppingSQL+`)`), set.Name, position)
		if err != nil {
			return err
		}
		if err := LockRoll(ctx, tx, set, position, "SHARE"); err != nil {
			return err
		}
		var revived, dropping bool
		err = tx.QueryRow(ctx, set.Tables.SQL(0, `
			SELECT idle_since IS NULL AND remaining_ids IS NULL,
			  `+droppingSQL+`
			FROM {rolls} WHERE table_set = $1 AND position = $2`), set.Name, position).
			Scan(&revived, &dropping)
		if err == nil && dropping {
			return notKept(position)
		}
		if err != nil || revived { // otherwise it was changed in between
			return err
		}
	}
}

// droppingSQL reports whether a roll is being dropped. A node of the version before ends that state
// by a redrive, as it doesn't know it.
const droppingSQL = `remaining_types IS NOT NULL AND remaining_ids IS NULL`

// MarkDropping marks an idle roll as being dropped, which only the drop ends.
func MarkDropping(ctx context.Context, tx pgx.Tx, set *TableSet, position int) error {
	_, err := tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls}
		SET remaining_since = idle_since, remaining_types = '{}', remaining_ids = NULL
		WHERE table_set = $1 AND position = $2`), set.Name, position)
	return err
}

// UnlessBusy returns the result of a step. A lock that the step couldn't get in time is no
// error: the step is tried again later.
func UnlessBusy(done bool, err error, op string, args ...any) (bool, error) {
	if postgres.State(err) == pgerrcode.LockNotAvailable {
		return false, nil
	}
	return done && err == nil, postgres.Wrap(err, op, args...)
}

// LockRoll locks a roll's row; CodeNotFound when the roll was dropped.
func LockRoll(ctx context.Context, tx pgx.Tx, set *TableSet, position int, how string) error {
	var locked int
	err := tx.QueryRow(ctx, set.Tables.SQL(0,
		`SELECT position FROM {rolls} WHERE table_set = $1 AND position = $2 FOR `+how),
		set.Name, position).Scan(&locked)
	if errors.Is(err, pgx.ErrNoRows) {
		return notKept(position)
	}
	return err
}

// KeepRoll locks a roll's row for a new task that depends on one of its tasks: until the
// transaction ends the roll is neither trimmed, compacted nor dropped, and no task of it is erased.
// It reports false of a roll that was dropped, or is being dropped: its tasks are gone.
func KeepRoll(
	ctx context.Context, tx pgx.Tx, set *TableSet, position int,
) (kept bool, err error) {
	err = tx.QueryRow(ctx, set.Tables.SQL(0, `SELECT NOT (`+droppingSQL+`) FROM {rolls}
		WHERE table_set = $1 AND position = $2 FOR KEY SHARE`), set.Name, position).Scan(&kept)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return kept, err
}

func notKept(position int) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "roll %d is not kept any more", position)
}

// IdleSince returns when a roll became idle; zero: it isn't idle.
func (s *TableSet) IdleSince(ctx context.Context, tx pgx.Tx, position int) (time.Time, error) {
	var idle *time.Time
	err := tx.QueryRow(ctx, s.Tables.SQL(0,
		`SELECT idle_since FROM {rolls} WHERE table_set = $1 AND position = $2`), s.Name,
		position).Scan(&idle)
	return postgres.OrZero(idle), err
}

// openRoll makes the tables and the row of a roll.
func (s *TableSet) openRoll(ctx context.Context, tx pgx.Tx, position int, now time.Time) error {
	if position > asyncflow.MaxPosition {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"all %d rolls of %q have been used; another task type begins at 1", asyncflow.MaxPosition,
			s.Name)
	}
	b := &pgx.Batch{}
	for _, statement := range s.Tables.createRoll(position) { // Citus takes one at a time
		b.Queue(statement)
	}
	b.Queue(`SELECT `+s.Tables.Qualify("open_roll")+`($1, $2, $3)`, s.Name, position, now)
	b.Queue(s.Tables.SQL(0, `UPDATE {rolls} SET searchable = true
		WHERE table_set = $1 AND position = $2`), s.Name, position)
	return tx.SendBatch(ctx, b).Close()
}
