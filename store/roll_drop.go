package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// IdleRoll marks a cleared roll as idle from now on if none of its tasks is live, and reports
// whether none is.
//
// Every event of a task happens while the task is live. So the roll's last event was earlier.
// IdleRoll doesn't read the journals: they have no index on time, and after a rolled-back
// transaction vacuum frees space at their beginning for new rows.
func (s *Store) IdleRoll(ctx context.Context, t *Type, position int) (idle bool, err error) {
	live, err := t.hasLive(ctx, s.of(t.Tenant), t.tables.live, position) // first without a lock
	if live || rolledOn(err) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "IdleRoll(%q, %q, %d)", t.Tenant, t.Name, position)
	}
	err = s.changeRolls(ctx, t, func(tx pgx.Tx, at positions, now time.Time) error {
		// The lock keeps tasks from being redriven meanwhile.
		if err := lockRoll(ctx, tx, t, position, "UPDATE"); err != nil {
			return err
		}
		live, err := t.hasLive(ctx, tx, at, position)
		if err != nil || live {
			return postgres.FirstError(err, errSame)
		}
		idle = true
		_, err = tx.Exec(ctx, `UPDATE `+t.tables.qualify("rolls")+` SET idle_since = $3
			WHERE type = $1 AND position = $2 AND ready_dropped
			  AND idle_since IS NULL`, t.Name, position, now)
		return err
	})
	return idle && err == nil, wrap(err, "IdleRoll(%q, %q, %d)", t.Tenant, t.Name, position)
}

// DropRoll drops the oldest roll of a type with all its finished tasks, if it became idle at a
// time or before.
func (s *Store) DropRoll(ctx context.Context, t *Type, since time.Time) (dropped bool, err error) {
	ctx = postgres.Patient(ctx)
	err = s.changeRolls(ctx, t, func(tx pgx.Tx, at positions, _ time.Time) error {
		if at.first != t.First || at.first >= at.begin {
			return errSame
		}
		if err := lockRoll(ctx, tx, t, at.first, "UPDATE"); err != nil {
			return err
		}
		idle, err := t.idleSince(ctx, tx, at.first)
		if err != nil || idle.IsZero() || idle.After(since) {
			return postgres.FirstError(err, errSame)
		}
		live, err := t.hasLive(ctx, tx, at, at.first)
		if err != nil || live {
			return postgres.FirstError(err, errSame)
		}
		dropped = true
		b := &pgx.Batch{}
		b.Queue(lockPatience)
		b.Queue(`UPDATE `+t.tables.qualify("task_types")+` SET first_pos = first_pos + 1 WHERE name = $1`,
			t.Name)
		b.Queue(`DELETE FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2`, t.Name,
			at.first)
		b.Queue(`DROP TABLE ` + t.tables.task(at.first) + `, ` + t.tables.journal(at.first))
		return tx.SendBatch(ctx, b).Close()
	})
	return unlessBusy(dropped, err, "DropRoll(%q, %q)", t.Tenant, t.Name)
}

// lockRoll locks a roll's row; CodeNotFound when the roll was dropped.
func lockRoll(ctx context.Context, tx pgx.Tx, t *Type, position int, how string) error {
	var locked int
	err := tx.QueryRow(ctx,
		`SELECT position FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2 FOR `+how,
		t.Name, position).Scan(&locked)
	if errors.Is(err, pgx.ErrNoRows) {
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "roll %d of %s is not kept any more", position,
			t.Name)
	}
	return err
}

// reviveRoll locks a roll's row for a redrive of one of its tasks: until the transaction ends
// the roll is neither dropped nor idle. Only the first redrive after the roll was idle changes
// the row, so that others don't wait for each other. CodeNotFound when the roll was dropped.
func reviveRoll(ctx context.Context, tx pgx.Tx, t *Type, position int) error {
	for {
		_, err := tx.Exec(ctx, `UPDATE `+t.tables.qualify("rolls")+` SET idle_since = NULL
			WHERE type = $1 AND position = $2 AND idle_since IS NOT NULL`, t.Name, position)
		if err != nil {
			return err
		}
		if err := lockRoll(ctx, tx, t, position, "SHARE"); err != nil {
			return err
		}
		// Otherwise it became idle in between.
		if idle, err := t.idleSince(ctx, tx, position); err != nil || idle.IsZero() {
			return err
		}
	}
}

// idleSince returns when a roll became idle; zero: it isn't idle.
func (t *Type) idleSince(ctx context.Context, tx pgx.Tx, position int) (time.Time, error) {
	var idle *time.Time
	err := tx.QueryRow(ctx,
		`SELECT idle_since FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2`, t.Name,
		position).Scan(&idle)
	return orZero(idle), err
}

// hasLive reports whether a task of a roll is live. One statement looks at all tables in which
// a task may have its token row; at has the positions of these tables.
func (t *Type) hasLive(
	ctx context.Context,
	db querier,
	at positions,
	position int,
) (live bool, err error) {
	first := asyncflow.NewTaskID(t.Name, position, 0).Number
	next := asyncflow.NewTaskID(t.Name, position+1, 0).Number
	var tables []string
	// Tables with an index on id come first.
	for _, table := range slices.Backward(t.tables.tokenTables(at)) {
		tables = append(tables, fmt.Sprintf(`EXISTS (SELECT FROM %s WHERE id >= $1 AND id < $2)`, table))
	}
	err = db.QueryRow(ctx, `SELECT `+strings.Join(tables, " OR "), first, next).Scan(&live)
	return live, err
}
