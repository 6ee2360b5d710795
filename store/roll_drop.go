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

// IdleRoll marks a cleared roll as idle from now on if none of its tasks is live, and reports
// whether none is.
//
// Every event of a task happens while the task is live. So the roll's last event was earlier.
// IdleRoll doesn't read the journals: they have no index on time, and after a rolled-back
// transaction vacuum frees space at their beginning for new rows.
func (s *Store) IdleRoll(ctx context.Context, set *TableSet, position int) (idle bool, err error) {
	live, err := set.hasLive(ctx, s.of(set.Tenant), position) // first without a lock
	if live || rolledOn(err) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "IdleRoll(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	err = s.changeSet(ctx, set, func(tx pgx.Tx, _ TableSet, now time.Time) error {
		// The lock keeps tasks from being redriven meanwhile.
		if err := lockRoll(ctx, tx, set, position, "UPDATE"); err != nil {
			return err
		}
		live, err := set.hasLive(ctx, tx, position)
		if err != nil || live {
			return postgres.FirstError(err, errSame)
		}
		idle = true
		_, err = tx.Exec(ctx, set.tables.at(0, `UPDATE {rolls} SET idle_since = $3
			WHERE table_set = $1 AND position = $2 AND ready_dropped AND idle_since IS NULL`),
			set.Name, position, now)
		return err
	})
	return idle && err == nil, wrap(err, "IdleRoll(%q, %q, %d)", set.Tenant, set.Name, position)
}

// DropRoll drops the oldest roll of a table set with all its finished tasks, if it became idle at a
// time or before. With its last roll, a closed set goes, too. What the tasks have in tables of all
// rolls is deleted first, in small steps.
func (s *Store) DropRoll(ctx context.Context, set *TableSet, since time.Time) (
	dropped bool, err error,
) {
	ctx = postgres.Patient(ctx)
	for more := true; more && err == nil; {
		dropped, more, err = s.dropStep(ctx, set, since)
	}
	return unlessBusy(dropped, err, "DropRoll(%q, %q)", set.Tenant, set.Name)
}

// dropStep is one transaction of DropRoll. It reports whether another one is to follow.
func (s *Store) dropStep(ctx context.Context, set *TableSet, since time.Time) (
	dropped, more bool, err error,
) {
	err = s.changeSet(ctx, set, func(tx pgx.Tx, at TableSet, now time.Time) error {
		if at.First != set.First || at.First >= at.Begin {
			return errSame
		}
		if err := lockRoll(ctx, tx, set, at.First, "UPDATE"); err != nil {
			return err
		}
		idle, err := set.idleSince(ctx, tx, at.First)
		if err != nil || idle.IsZero() || idle.After(since) {
			return postgres.FirstError(err, errSame)
		}
		live, err := set.hasLive(ctx, tx, at.First)
		if err != nil || live {
			return postgres.FirstError(err, errSame)
		}
		if awaited, err := set.hasChildren(ctx, tx, at.First); err != nil || awaited {
			return postgres.FirstError(err, errSame)
		}
		first := asyncflow.NewTaskID("", at.First, 0).Number
		next := asyncflow.NewTaskID("", at.First+1, 0).Number
		n, err := deleteTreeRows(ctx, tx, set.tables, `type IN (SELECT number FROM {types}
			WHERE table_set = $2 OR earlier_set = $2) AND id >= $3 AND id < $4`, set.Name, first, next)
		if more = n > 0; err != nil || more {
			return err
		}
		dropped = true
		b := &pgx.Batch{}
		b.Queue(lockPatience)
		b.Queue(set.tables.at(0, `UPDATE {sets} SET first_pos = first_pos + 1 WHERE name = $1`), set.Name)
		b.Queue(set.tables.at(0, `UPDATE {types} SET earlier_set = NULL
			WHERE earlier_set = $1 AND from_pos <= $2`), set.Name, at.First+1)
		b.Queue(set.tables.at(0, `DELETE FROM {rolls} WHERE table_set = $1 AND position = $2`), set.Name,
			at.First)
		b.Queue(`DROP TABLE ` + set.tables.task(at.First) + `, ` + set.tables.journal(at.First))
		b.Queue(set.tables.at(0, `INSERT INTO {outbox} (kind, due, type, id)
			SELECT DISTINCT 'look', $4::timestamptz, type, id FROM (
			  SELECT type, id FROM {edges} WHERE on_type IN (`+typesOfSetSQL+`) AND on_id >= $2
			    AND on_id < $3 AND status IS NULL LIMIT $5) e`), set.Name, first, next, now, JobBatch)
		if set.Closed && at.First == at.End {
			b.Queue(set.tables.at(0, `UPDATE {types} SET earlier_set = NULL WHERE earlier_set = $1`),
				set.Name)
			b.Queue(set.tables.at(0, `DELETE FROM {sets} WHERE name = $1`), set.Name)
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return dropped, more, err
}

// typesOfSetSQL selects the numbers of the types that may have tasks in the set $1.
const typesOfSetSQL = `SELECT number FROM {types} WHERE table_set = $1 OR earlier_set = $1`

// hasChildren reports whether a roll has children whose parents still wait for them: their results
// are needed.
func (s *TableSet) hasChildren(
	ctx context.Context, tx pgx.Tx, position int,
) (has bool, err error) {
	err = tx.QueryRow(ctx, s.tables.at(0, `SELECT EXISTS (
		SELECT FROM {fan_outs}, unnest(firsts) first
		WHERE NOT closed AND type IN (`+typesOfSetSQL+`) AND first >= $2 AND first < $3)`), s.Name,
		asyncflow.NewTaskID("", position, 0).Number, asyncflow.NewTaskID("", position+1, 0).Number).
		Scan(&has)
	return has, err
}

// hasLive reports whether a task of a roll is live.
func (s *TableSet) hasLive(ctx context.Context, db querier, position int) (live bool, err error) {
	_, types, err := readLocations(ctx, db, s.Tenant, "")
	if err != nil {
		return false, err
	}
	// Types with the same token tables are looked at together.
	numbers, tables := map[string][]int32{}, map[string][]string{}
	for _, l := range types {
		if l.setAt(position).Name == s.Name && slices.Contains(l.rolls(), position) {
			t := &Type{location: l}
			all := t.tokenTables()
			key := strings.Join(all, ",")
			numbers[key], tables[key] = append(numbers[key], l.number), all
		}
	}
	first := asyncflow.NewTaskID("", position, 0).Number
	next := asyncflow.NewTaskID("", position+1, 0).Number
	for key, all := range tables {
		places := make([]string, len(all))
		for i, table := range all {
			places[i] = fmt.Sprintf(
				`EXISTS (SELECT FROM %s k WHERE k.type = t.number AND k.id >= $2 AND k.id < $3)`, table)
		}
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM unnest($1::int[]) AS t (number) WHERE `+
			strings.Join(places, " OR ")+`)`, numbers[key], first, next).Scan(&live)
		if err != nil || live {
			return live, err
		}
	}
	return false, nil
}
