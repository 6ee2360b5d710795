package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// OpenRoll makes the tables of the next roll, which gets the new tasks from then on. It does
// nothing while an earlier roll is not drained, so that tasks are leased from two rolls at
// most. It also does nothing if the type's rolls are no longer those of t.
func (s *Store) OpenRoll(ctx context.Context, t *Type) (opened bool, err error) {
	err = s.changeRolls(ctx, t, func(tx pgx.Tx, at positions, now time.Time) error {
		if at.end != t.End || at.begin != at.end {
			return errSame
		}
		opened = true
		return t.tables.openNext(ctx, tx, at, now)
	})
	return opened && err == nil, wrap(err, "OpenRoll(%q, %q)", t.Tenant, t.Name)
}

// openNext makes the next roll, which gets the new tasks from then on.
func (t *tables) openNext(ctx context.Context, tx pgx.Tx, at positions, now time.Time) error {
	if err := t.openRoll(ctx, tx, at.end+1, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE `+t.qualify("task_types")+` SET end_pos = $2 WHERE name = $1`,
		t.name, at.end+1)
	return err
}

// openRoll makes the tables and the row of a roll.
func (t *tables) openRoll(ctx context.Context, tx pgx.Tx, position int, now time.Time) error {
	for _, ddl := range t.createRoll(position) {
		if _, err := tx.Exec(ctx, ddl); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `SELECT `+t.qualify("open_roll")+`($1, $2, $3)`, t.name, position, now)
	return err
}
