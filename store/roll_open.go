package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// OpenRoll makes the tables of the next roll of a table set, which gets the new tasks from then on.
// It does nothing while an earlier roll is not drained, so that tasks are leased from two rolls at
// most. It also does nothing if the rolls are no longer those of set, or if the open one is the
// last that ids can name: that one then takes all tasks to come.
func (s *Store) OpenRoll(ctx context.Context, set *TableSet) (opened bool, err error) {
	err = s.changeSet(ctx, set, func(tx pgx.Tx, at TableSet, now time.Time) error {
		if set.Closed || at.End != set.End || at.Begin != at.End ||
			at.End == asyncflow.MaxPosition {
			return errSame
		}
		opened = true
		return at.openNext(ctx, tx, now)
	})
	return opened && err == nil, wrap(err, "OpenRoll(%q, %q)", set.Tenant, set.Name)
}

// openNext makes the next roll, which gets the new tasks from then on.
func (s *TableSet) openNext(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if err := s.openRoll(ctx, tx, s.End+1, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.tables.at(0, `UPDATE {sets} SET end_pos = $2 WHERE name = $1`), s.Name,
		s.End+1)
	return err
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
