package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A roll goes through six steps, each a short transaction that a crash leaves either
// done or not begun:
//
//	open     its tables are made and end_pos is set to it
//	sealed   after the next one has opened and every node knows: nothing is added to
//	         its task and ready tables any more
//	drained  its ready table is empty: begin_pos moves on
//	cleared  its ready table is dropped
//	idle     no live task is its own: nothing can happen in it any more, but for a redrive
//	dropped  after the retention: so are its other tables
//
// What waits for a lock of a busy table gives up soon and is tried again.

// Roll is one generation of a type's tables.
type Roll struct {
	Type         string
	Position     int
	Room         int64 // how many tasks it can have at most, by its size; 0: it has none
	OpenedAt     time.Time
	SealedAt     time.Time // zero: not sealed
	DrainedAt    time.Time // zero: tasks are leased from it
	ReadyDropped bool
	IdleSince    time.Time // zero: a task may be live
	// Lost reports whether it was opened before the database went back: see EnterHistory.
	Lost bool
}

// Rolls returns the rolls of all types of a tenant, by type and position.
func (s *Store) Rolls(ctx context.Context, tenant string) ([]Roll, error) {
	rows, err := s.of(tenant).Query(ctx, `SELECT type, position,
		  coalesce(pg_relation_size(to_regclass(format('%I.%I', $1::text, 'task_' || type || '_' || position))) / $2, 0),
		  opened_at, sealed_at, drained_at, ready_dropped, idle_since,
		  history <> (SELECT `+quote(schemaOf(tenant))+`.history($3::regclass))
		FROM `+quote(schemaOf(tenant))+`.rolls ORDER BY type, position`, schemaOf(tenant), leastTask, quote(schemaOf(tenant))+".rolls")
	if err != nil {
		return nil, wrap(err, "Rolls(%q)", tenant)
	}
	rolls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Roll, err error) {
		var sealed, drained, idle *time.Time
		err = row.Scan(&r.Type, &r.Position, &r.Room, &r.OpenedAt, &sealed, &drained, &r.ReadyDropped, &idle, &r.Lost)
		r.SealedAt, r.DrainedAt, r.IdleSince = orZero(sealed), orZero(drained), orZero(idle)
		return r, err
	})
	return rolls, wrap(err, "Rolls(%q)", tenant)
}

// leastTask is how many bytes the row of a task takes at least, with its header and its alignment.
const leastTask = 60

// samplePages is how many pages of a task table are counted to judge how many rows it
// has; smaller tables are counted whole.
const samplePages = 100

// TasksIn returns about how many tasks a roll has, judged by its size: the rows of some
// pages, times how many such there are.
func (s *Store) TasksIn(ctx context.Context, t *Type, position int) (int64, error) {
	var pages int64
	err := s.of(t.Tenant).QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint`, t.tables.task(position)).Scan(&pages)
	if err != nil || pages == 0 {
		return 0, wrap(err, "TasksIn(%q, %q, %d)", t.Tenant, t.Name, position)
	}
	percent := min(100, 100*float64(samplePages)/float64(pages))
	var rows float64
	err = s.of(t.Tenant).QueryRow(ctx, t.tables.at(position, `SELECT count(*) FROM {task} TABLESAMPLE SYSTEM ($1)`), percent).Scan(&rows)
	return int64(rows * 100 / percent), wrap(err, "TasksIn(%q, %q, %d)", t.Tenant, t.Name, position)
}

// lockPatience is how long a step waits for the lock of a busy table: whoever comes
// after it waits too.
const lockPatience = `SET LOCAL lock_timeout = '100ms'`

// OpenRoll makes the tables of the next roll and has new tasks go there. It does
// nothing while an earlier roll is not drained yet, so that tasks are leased from two
// at most, or if t is not how the type stands any more.
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

// openNext makes the next roll, and has new tasks go there.
func (t *tables) openNext(ctx context.Context, tx pgx.Tx, at positions, now time.Time) error {
	if err := t.openRoll(ctx, tx, at.end+1, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE `+t.qualify("task_types")+` SET end_pos = $2 WHERE name = $1`, t.name, at.end+1)
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

// SealRoll keeps rows from being added to a roll that is not open any more: a foreign
// key to a table that is always empty refuses each. Its lock waits out those who are
// adding some, and blocks nobody who reads. It tells whether it could have the lock.
func (s *Store) SealRoll(ctx context.Context, t *Type, position int) (done bool, err error) {
	err = pgx.BeginFunc(ctx, s.of(t.Tenant), func(tx pgx.Tx) error {
		if position >= t.End {
			return asyncflow.Errorf(asyncflow.CodeInternal, "roll %d is open", position)
		}
		b := &pgx.Batch{}
		b.Queue(lockPatience)
		for _, table := range []string{t.tables.task(position), t.tables.ready(position)} {
			b.Queue(`ALTER TABLE ` + table + ` ADD CONSTRAINT ` + sealed + ` FOREIGN KEY (id) REFERENCES ` + t.tables.qualify("sealed") + ` NOT VALID`)
		}
		b.Queue(`UPDATE `+t.tables.qualify("rolls")+` SET sealed_at = $3 WHERE type = $1 AND position = $2`, t.Name, position, s.Clock.Now())
		return tx.SendBatch(ctx, b).Close()
	})
	return unlessBusy(true, err, "SealRoll(%q, %q, %d)", t.Tenant, t.Name, position)
}

// unlessBusy returns what a step has come to: a lock that it could not have in time is no
// error, it is tried again later.
func unlessBusy(done bool, err error, op string, args ...any) (bool, error) {
	if sqlState(err) == "55P03" {
		return false, nil
	}
	return done && err == nil, wrap(err, op, args...)
}

// sealed is the name of the constraint that seals a table.
const sealed = "sealed"

// DrainRoll has tasks be leased from the next roll on, if the ready table of the first
// one is sealed and empty.
func (s *Store) DrainRoll(ctx context.Context, t *Type) (drained bool, err error) {
	err = s.changeRolls(ctx, t, func(tx pgx.Tx, at positions, now time.Time) error {
		if at.begin != t.Begin || at.begin == at.end {
			return errSame
		}
		var done bool
		err := tx.QueryRow(ctx, t.tables.at(at.begin, `SELECT sealed_at IS NOT NULL AND NOT EXISTS (SELECT FROM {ready})
			FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2`), t.Name, at.begin).Scan(&done)
		if err != nil || !done {
			return postgres.FirstError(err, errSame)
		}
		drained = true
		b := &pgx.Batch{}
		b.Queue(`UPDATE `+t.tables.qualify("task_types")+` SET begin_pos = begin_pos + 1 WHERE name = $1`, t.Name)
		b.Queue(`UPDATE `+t.tables.qualify("rolls")+` SET drained_at = $3 WHERE type = $1 AND position = $2`, t.Name, at.begin, now)
		return tx.SendBatch(ctx, b).Close()
	})
	return drained && err == nil, wrap(err, "DrainRoll(%q, %q)", t.Tenant, t.Name)
}

// ClearRoll drops the ready table of a drained roll. It tells whether it could have the
// lock.
func (s *Store) ClearRoll(ctx context.Context, t *Type, position int) (done bool, err error) {
	ctx = postgres.Patient(ctx)
	err = pgx.BeginFunc(ctx, s.of(t.Tenant), func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(lockPatience)
		b.Queue(`DROP TABLE IF EXISTS ` + t.tables.ready(position))
		b.Queue(`UPDATE `+t.tables.qualify("rolls")+` SET ready_dropped = true WHERE type = $1 AND position = $2 AND drained_at IS NOT NULL`, t.Name, position)
		return tx.SendBatch(ctx, b).Close()
	})
	return unlessBusy(true, err, "ClearRoll(%q, %q, %d)", t.Tenant, t.Name, position)
}

// IdleRoll notes of a cleared roll since when no task of it has been live, if none is, and
// reports whether none is.
//
// Every event of a task comes while it is live: so the last one of the roll was before.
// Journals are not asked, as they have no index on time, and vacuum gives room at their
// beginning free for new rows when a transaction was rolled back there.
func (s *Store) IdleRoll(ctx context.Context, t *Type, position int) (idle bool, err error) {
	live, err := t.hasLive(ctx, s.of(t.Tenant), t.tables.live, position) // first without a lock
	if live || rolledOn(err) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "IdleRoll(%q, %q, %d)", t.Tenant, t.Name, position)
	}
	err = s.changeRolls(ctx, t, func(tx pgx.Tx, at positions, now time.Time) error {
		if err := lockRoll(ctx, tx, t, position, "UPDATE"); err != nil { // nothing is redriven meanwhile
			return err
		}
		live, err := t.hasLive(ctx, tx, at, position)
		if err != nil || live {
			return postgres.FirstError(err, errSame)
		}
		idle = true
		_, err = tx.Exec(ctx, `UPDATE `+t.tables.qualify("rolls")+` SET idle_since = $3
			WHERE type = $1 AND position = $2 AND ready_dropped AND idle_since IS NULL`, t.Name, position, now)
		return err
	})
	return idle && err == nil, wrap(err, "IdleRoll(%q, %q, %d)", t.Tenant, t.Name, position)
}

// DropRoll drops the oldest roll of a type with all its finished tasks, if it has been idle
// since a time or longer.
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
		b.Queue(`UPDATE `+t.tables.qualify("task_types")+` SET first_pos = first_pos + 1 WHERE name = $1`, t.Name)
		b.Queue(`DELETE FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2`, t.Name, at.first)
		b.Queue(`DROP TABLE ` + t.tables.task(at.first) + `, ` + t.tables.journal(at.first))
		return tx.SendBatch(ctx, b).Close()
	})
	return unlessBusy(dropped, err, "DropRoll(%q, %q)", t.Tenant, t.Name)
}

// lockRoll holds a roll's row; CodeNotFound when it was dropped.
func lockRoll(ctx context.Context, tx pgx.Tx, t *Type, position int, how string) error {
	var held int
	err := tx.QueryRow(ctx, `SELECT position FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2 FOR `+how,
		t.Name, position).Scan(&held)
	if err == pgx.ErrNoRows {
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "roll %d of %s is not kept any more", position, t.Name)
	}
	return err
}

// reviveRoll holds a roll's row for what sets a final task of it going again: the roll is not
// dropped, nor idle, until the transaction ends. Only the first one after the roll was
// idle changes the row, so that the others don't wait for each other. CodeNotFound when it
// was dropped.
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
		if idle, err := t.idleSince(ctx, tx, position); err != nil || idle.IsZero() { // else it became idle in between
			return err
		}
	}
}

// idleSince returns since when a roll has been idle; zero: it isn't.
func (t *Type) idleSince(ctx context.Context, tx pgx.Tx, position int) (time.Time, error) {
	var idle *time.Time
	err := tx.QueryRow(ctx, `SELECT idle_since FROM `+t.tables.qualify("rolls")+` WHERE type = $1 AND position = $2`, t.Name, position).Scan(&idle)
	return orZero(idle), err
}

// hasLive reports whether a task of a roll is live. It looks at once at all tables in which one
// may have its token row; at is where they are.
func (t *Type) hasLive(ctx context.Context, db querier, at positions, position int) (live bool, err error) {
	first := asyncflow.NewTaskID(t.Name, position, 0).Number
	next := asyncflow.NewTaskID(t.Name, position+1, 0).Number
	var tables []string
	for _, table := range slices.Backward(t.tables.tokenTables(at)) { // those with an index on id first
		tables = append(tables, fmt.Sprintf(`EXISTS (SELECT FROM %s WHERE id >= $1 AND id < $2)`, table))
	}
	err = db.QueryRow(ctx, `SELECT `+strings.Join(tables, " OR "), first, next).Scan(&live)
	return live, err
}

// changeRolls runs do in a transaction that holds the type's row, and tells all nodes
// of the change unless do returns errSame.
func (s *Store) changeRolls(ctx context.Context, t *Type, do func(tx pgx.Tx, at positions, now time.Time) error) error {
	err := s.change(ctx, t.Tenant, func(tx pgx.Tx) error {
		if _, err := readTaskType(ctx, tx, t.Tenant, t.Name, "FOR NO KEY UPDATE"); err != nil {
			return err
		}
		at, err := readPositions(ctx, tx, t.Tenant, t.Name)
		if err != nil {
			return err
		}
		return do(tx, at, s.Clock.Now())
	})
	if err == errSame {
		return nil
	}
	return err
}
