package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// openNext makes the next roll, which gets the new tasks from then on.
func (s *TableSet) openNext(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if err := s.openRoll(ctx, tx, s.End+1, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.tables.at(0, `UPDATE {sets} SET end_pos = $2 WHERE name = $1`), s.Name,
		s.End+1)
	return err
}

// openSet makes a table set with its first roll, at a position.
func openSet(ctx context.Context, tx pgx.Tx, tenant, name string, position int, now time.Time) (
	*TableSet, error,
) {
	set := &TableSet{Tenant: tenant, Name: name, First: position, Begin: position, End: position,
		tables: newTables(tenant, name)}
	_, err := tx.Exec(ctx, set.tables.at(0, `INSERT INTO {sets} (name, first_pos, begin_pos, end_pos)
		VALUES ($1, $2, $2, $2)`), name, position)
	if err != nil {
		return nil, err
	}
	return set, set.openRoll(ctx, tx, position, now)
}

// reviveRoll locks a roll's row for a redrive of one of its tasks: until the transaction ends
// the roll is neither dropped nor idle. Only the first redrive after the roll was idle changes
// the row, so that others don't wait for each other. CodeNotFound when the roll was dropped.
func reviveRoll(ctx context.Context, tx pgx.Tx, set *TableSet, position int) error {
	for {
		_, err := tx.Exec(ctx, set.tables.at(0, `UPDATE {rolls} SET idle_since = NULL
			WHERE table_set = $1 AND position = $2 AND idle_since IS NOT NULL`), set.Name, position)
		if err != nil {
			return err
		}
		if err := lockRoll(ctx, tx, set, position, "SHARE"); err != nil {
			return err
		}
		// Otherwise it became idle in between.
		if idle, err := set.idleSince(ctx, tx, position); err != nil || idle.IsZero() {
			return err
		}
	}
}

// unlessBusy returns the result of a step. A lock that the step couldn't get in time is no
// error: the step is tried again later.
func unlessBusy(done bool, err error, op string, args ...any) (bool, error) {
	if sqlState(err) == pgerrcode.LockNotAvailable {
		return false, nil
	}
	return done && err == nil, wrap(err, op, args...)
}

// lockRoll locks a roll's row; CodeNotFound when the roll was dropped.
func lockRoll(ctx context.Context, tx pgx.Tx, set *TableSet, position int, how string) error {
	var locked int
	err := tx.QueryRow(ctx, set.tables.at(0,
		`SELECT position FROM {rolls} WHERE table_set = $1 AND position = $2 FOR `+how),
		set.Name, position).Scan(&locked)
	if errors.Is(err, pgx.ErrNoRows) {
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "roll %d is not kept any more", position)
	}
	return err
}

// idleSince returns when a roll became idle; zero: it isn't idle.
func (s *TableSet) idleSince(ctx context.Context, tx pgx.Tx, position int) (time.Time, error) {
	var idle *time.Time
	err := tx.QueryRow(ctx, s.tables.at(0,
		`SELECT idle_since FROM {rolls} WHERE table_set = $1 AND position = $2`), s.Name,
		position).Scan(&idle)
	return orZero(idle), err
}

// openRoll makes the tables and the row of a roll.
func (s *TableSet) openRoll(ctx context.Context, tx pgx.Tx, position int, now time.Time) error {
	if position > asyncflow.MaxPosition {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"all %d rolls of %q have been used; another task type begins at 1", asyncflow.MaxPosition,
			s.Name)
	}
	if _, err := tx.Exec(ctx, s.tables.createRoll(position)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT `+s.tables.qualify("open_roll")+`($1, $2, $3)`, s.Name, position,
		now)
	return err
}
