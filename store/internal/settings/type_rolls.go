package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// MaxTypeRolls is how many rolls TypeRolls returns at most.
const MaxTypeRolls = 100

// TypeRoll is a roll that may have tasks of a type.
type TypeRoll struct {
	Position int
	// Own reports whether its tables have no other types' tasks; otherwise Bytes and Tasks
	// count all types that share them.
	Own bool

	OpenedAt  time.Time
	SealedAt  time.Time // zero: not sealed
	DrainedAt time.Time // zero: tasks are leased from it
	IdleSince time.Time // zero: a task may be live

	Retention time.Duration // how long it is kept once it is idle
	// DropsAt is when it is dropped if nothing delays that: once its retention is over, and the
	// retention of each older roll of its set. Zero: one of these rolls isn't idle.
	DropsAt time.Time
	// CompactsAt is when its tasks that have ended are erased, as live tasks keep its tables: its
	// own or, if it is idle, those of an older roll. If too many are live, it is when the next pass
	// over the ended ones begins. Zero: it is dropped by then, or that isn't known.
	CompactsAt time.Time

	// NextTasks is about how many tasks the open roll has when the next one opens; 0: it isn't
	// open.
	NextTasks int64
	// NextAt is when the next one opens by age. Zero: never, as the roll is empty or not open.
	NextAt time.Time

	Bytes int64 // of its tables, with their indexes
	Tasks int64 // about how many it has, live and final
}

// TypeRolls returns the rolls that may have tasks of a type, newest first, and how many older ones
// it leaves out beyond MaxTypeRolls; CodeNotFound when there is no such type.
//
// It takes three statements at most, however many rolls there are, and reads no more than
// countedPages of a table (measured: 25 ms for 100 small rolls, each of which it counts).
func (s *types) TypeRolls(
	ctx context.Context, tenant, name string,
) (rolls []TypeRoll, older int, err error) {
	rolls, older, err = s.typeRolls(ctx, tenant, name)
	// A roll was dropped, or the type deleted, a moment ago.
	if postgres.State(err) == pgerrcode.UndefinedTable {
		if err := s.core.Catalog.RefreshTenant(ctx, tenant); err != nil {
			return rolls, older, postgres.Wrap(err, "TypeRolls(%q, %q)", tenant, name)
		}
		rolls, older, err = s.typeRolls(ctx, tenant, name)
	}
	return rolls, older, postgres.Wrap(err, "TypeRolls(%q, %q)", tenant, name)
}

func (s *types) typeRolls(
	ctx context.Context, tenant, name string,
) (rolls []TypeRoll, older int, err error) {
	t, err := s.core.Catalog.Fresh(ctx, tenant, name)
	if err != nil {
		return nil, 0, err
	}
	if rolls, err = s.datedRolls(ctx, t); err != nil {
		return nil, 0, err
	}
	slices.Reverse(rolls)
	if older = max(0, len(rolls)-MaxTypeRolls); older > 0 {
		rolls = rolls[:MaxTypeRolls]
	}
	if err := s.measureRolls(ctx, t, rolls); err != nil {
		return nil, 0, err
	}
	for i := range rolls {
		s.addNext(t, &rolls[i])
	}
	return rolls, older, nil
}

// datedRolls returns the rolls of a type without their sizes, oldest first.
func (s *types) datedRolls(ctx context.Context, t *config.Type) (rolls []TypeRoll, err error) {
	sets := map[string]*config.TableSet{t.Set().Name: t.Set()}
	names := []string{t.Set().Name}
	if t.Earlier != nil {
		sets[t.Earlier.Name] = t.Earlier
		names = append(names, t.Earlier.Name)
	}
	rows, err := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, `
		SELECT table_set, position, opened_at, sealed_at, drained_at, idle_since, remaining_since,
		  trim_at
		FROM {rolls} WHERE table_set = ANY($1) ORDER BY position`), names)
	if err != nil {
		return nil, err
	}
	drops := map[string]time.Time{} // when the last roll of a set goes; zero: it isn't idle
	var name string
	var position int
	var opened time.Time
	var sealed, drained, idle, remaining, trim *time.Time
	_, err = pgx.ForEachRow(rows,
		[]any{&name, &position, &opened, &sealed, &drained, &idle, &remaining,
			&trim},
		func() error {
			set := sets[name]
			r := TypeRoll{Position: position, Own: !set.Shared(), OpenedAt: opened,
				SealedAt: postgres.OrZero(sealed), DrainedAt: postgres.OrZero(drained),
				IdleSince: postgres.OrZero(idle), Retention: s.core.Catalog.Retention(set,
					position)}
			last, seen := drops[name]
			if idle != nil && (!seen || !last.IsZero()) {
				r.DropsAt = idle.Add(r.Retention)
				if last.After(r.DropsAt) {
					r.DropsAt = last
				}
			}
			drops[name] = r.DropsAt
			if idle != nil { // the note of earlier live tasks says nothing now
				remaining = idle
			}
			if remaining != nil {
				r.CompactsAt = remaining.Add(config.CompactAfter(r.Retention))
			}
			if idle == nil && trim != nil && (remaining == nil || trim.Before(r.CompactsAt)) {
				r.CompactsAt = *trim
			}
			if !r.DropsAt.IsZero() && !r.DropsAt.After(r.CompactsAt) {
				r.CompactsAt = time.Time{}
			}
			if t.HasIn(set, position) {
				rolls = append(rolls, r)
			}
			return nil
		})
	return rolls, err
}

// countedPages is how many pages of a task table measureRolls counts the tasks of.
const countedPages = 20

// measureRolls adds the bytes and the tasks of rolls. Like the planner, it takes the tasks of a
// page from the last ANALYZE. For small tables and tables without ANALYZE it counts the first
// pages.
func (s *types) measureRolls(ctx context.Context, t *config.Type, rolls []TypeRoll) error {
	var tasks, journals, readies, searches []string
	for _, r := range rolls {
		tables := t.SetAt(r.Position).Tables
		tasks = append(tasks, tables.Task(r.Position))
		journals = append(journals, tables.Journal(r.Position))
		readies = append(readies, tables.Ready(r.Position))
		searches = append(searches, tables.Search(r.Position))
	}
	bytesOf := func(relation string) string {
		return `coalesce(` + s.core.SizeSQL(t.Tenant, relation, true) + `, 0)`
	}
	own := s.core.SizeSQL(t.Tenant, "c.oid", false)
	rows, err := s.core.DB(t.Tenant).Query(ctx, `
		SELECT `+bytesOf("c.oid")+` + `+bytesOf("to_regclass(journal)")+`
		    + `+bytesOf("to_regclass(ready)")+` + `+bytesOf("to_regclass(search)")+`,
		  coalesce(`+own+` / current_setting('block_size')::bigint, 0),
		  coalesce(c.reltuples / nullif(c.relpages, 0), -1)
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
		  WITH ORDINALITY r (task, journal, ready, search, n)
		LEFT JOIN pg_class c ON c.oid = to_regclass(task) ORDER BY n`, tasks, journals, readies,
		searches)
	if err != nil {
		return err
	}
	var counts []string // statements
	pages := make([]int64, len(rolls))
	var i int
	var bytes, size int64
	var perPage float64
	if _, err := pgx.ForEachRow(rows, []any{&bytes, &size, &perPage}, func() error {
		rolls[i].Bytes = bytes
		pages[i] = size
		if size > 0 && (size <= countedPages || perPage < 0) {
			counts = append(counts, fmt.Sprintf(`SELECT %d, count(*) FROM %s WHERE ctid < '(%d,0)'`,
				i,
				tasks[i], countedPages))
		} else {
			rolls[i].Tasks = int64(perPage * float64(size))
		}
		i++
		return nil
	}); err != nil || len(counts) == 0 {
		return err
	}
	rows, err = postgres.Unprepared{Q: s.core.DB(t.Tenant)}.Query(ctx,
		strings.Join(counts, " UNION ALL "))
	if err != nil {
		return err
	}
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&i, &n}, func() error {
		rolls[i].Tasks = n * max(countedPages, pages[i]) / countedPages
		return nil
	})
	return err
}

// addNext adds when the next roll opens to the one that is open.
func (s *types) addNext(t *config.Type, r *TypeRoll) {
	set := t.SetAt(r.Position)
	if set.Closed || r.Position != set.End || !r.SealedAt.IsZero() {
		return
	}
	var age time.Duration
	r.NextTasks, age = s.core.Catalog.RollSize(set)
	if r.Tasks > 0 {
		r.NextAt = r.OpenedAt.Add(age)
	}
}
