package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	_, err := tx.Exec(ctx, s.Tables.SQL(0, `UPDATE {sets} SET end_pos = $2 WHERE name = $1`), s.Name,
		s.End+1)
	return err
}

// OpenSet makes a table set with its first roll, at a position.
func OpenSet(ctx context.Context, tx pgx.Tx, tenant, name string, position int, now time.Time) (
	*TableSet, error,
) {
	set := &TableSet{Tenant: tenant, Name: name, First: position, Begin: position, End: position,
		Tables: NewTables(tenant, name)}
	_, err := tx.Exec(ctx, set.Tables.SQL(0, `INSERT INTO {sets} (name, first_pos, begin_pos, end_pos)
		VALUES ($1, $2, $2, $2)`), name, position)
	if err != nil {
		return nil, err
	}
	return set, set.openRoll(ctx, tx, position, now)
}

// ReviveRoll locks a roll's row for a redrive of one of its tasks: until the transaction ends the
// roll is neither dropped nor idle. Only the first redrive after the roll was idle changes the row,
// so that other redrives don't wait for each other. CodeNotFound when the roll was dropped.
func ReviveRoll(ctx context.Context, tx pgx.Tx, set *TableSet, position int) error {
	for {
		_, err := tx.Exec(ctx, set.Tables.SQL(0, `UPDATE {rolls} SET idle_since = NULL
			WHERE table_set = $1 AND position = $2 AND idle_since IS NOT NULL`), set.Name, position)
		if err != nil {
			return err
		}
		if err := LockRoll(ctx, tx, set, position, "SHARE"); err != nil {
			return err
		}
		// Otherwise it became idle in between.
		if idle, err := set.IdleSince(ctx, tx, position); err != nil || idle.IsZero() {
			return err
		}
	}
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
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "roll %d is not kept any more", position)
	}
	return err
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
	if _, err := tx.Exec(ctx, s.Tables.createRoll(position)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT `+s.Tables.Qualify("open_roll")+`($1, $2, $3)`, s.Name, position,
		now)
	return err
}

// HasLive reports whether a task of a roll is live.
func (s *TableSet) HasLive(
	ctx context.Context, db postgres.Querier, position int,
) (live bool, err error) {
	_, types, err := ReadLocations(ctx, db, s.Tenant, "")
	if err != nil {
		return false, err
	}
	// One statement reads all types with the same token tables.
	numbers := map[string][]int32{}
	tables := map[string][]string{}
	for _, l := range types {
		if l.SetAt(position).Name == s.Name && slices.Contains(l.Rolls(), position) {
			t := &Type{Location: l}
			all := TokenTables(t)
			key := strings.Join(all, ",")
			numbers[key] = append(numbers[key], l.number)
			tables[key] = all
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

// HasChildren reports whether a roll has children that are still awaited by their parents: their
// results are needed.
func (s *TableSet) HasChildren(ctx context.Context, tx pgx.Tx, position int) (has bool, err error) {
	err = tx.QueryRow(ctx, s.Tables.SQL(0, `SELECT EXISTS (
		SELECT FROM {fan_outs}, unnest(firsts) first
		WHERE NOT closed AND type IN (`+TypesOfSetSQL+`) AND first >= $2 AND first < $3)`), s.Name,
		asyncflow.NewTaskID("", position, 0).Number, asyncflow.NewTaskID("", position+1, 0).Number).
		Scan(&has)
	return has, err
}

// TypesOfSetSQL selects the numbers of the types that may have tasks in the set $1.
const TypesOfSetSQL = `SELECT number FROM {types} WHERE table_set = $1 OR earlier_set = $1`
