package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// PlacedTables are the tables of a tenant as its worker of Citus has them: plain tables, each with
// a name of its own, which Citus calls shards. A statement that names them is planned once for a
// connection. One that names the tables that Citus shows is planned at least twice each time that
// it runs, and its text is written and parsed anew: that doubles the CPU time of a task.
//
// Postgres itself doesn't know when the tenant moves to another worker: the tables stay here for
// some seconds, and what is written to them is lost. So each transaction first takes the lock that
// Citus' own writers take, for which a move waits, and then looks whether the tenant is still here;
// see ADR 72. It is safe for concurrent use.
//
// The tables here don't number their rows: Citus does that before, by a sequence that each worker
// has, in a range of its own. An INSERT … SELECT into them takes the numbers from there by itself.
type PlacedTables struct {
	one    int64 // the number of one of them: Citus has one lock for all tables of a schema
	schema string
	named  *regexp.Regexp
	moved  atomic.Bool
	// refused says that the worker refused a statement for want of a right.
	refused atomic.Bool

	mu    sync.Mutex
	names map[string]placedName // by the name that Citus shows
	texts map[string]placedText // by the statement with the names that Citus shows
}

// placedName is the name of a table here.
type placedName struct {
	name    string // qualified and quoted; of functions: ""
	numbers bool   // the table that Citus shows numbers its rows
	column  string // with the number
	next    string // the next number
	writes  bool   // it is a function that may write, to tables as Citus shows them
}

// placedText is a statement that names the tables here.
type placedText struct {
	sql   string
	shown bool // some of what it does names tables as Citus shows them
}

// The most names and texts that PlacedTables keep. A type has some 20 statements for each roll.
const (
	placedNames = 16384
	placedTexts = 4096
)

// NewPlacedTables returns the tables of a schema, of which one has a number.
func NewPlacedTables(schema string, one int64) *PlacedTables {
	s := &PlacedTables{one: one, schema: schema, named: regexp.MustCompile(
		regexp.QuoteMeta(Quote(schema)) + `\.(?:"((?:[^"]|"")+)"|([a-z_][a-z0-9_]*))`)}
	s.forget()
	return s
}

// forget forgets all names.
func (s *PlacedTables) forget() {
	s.names, s.texts = map[string]placedName{}, map[string]placedText{}
}

// Are reports whether one of the tables has a number, and none has moved as far as is known.
func (s *PlacedTables) Are(one int64) bool { return s.one == one && !s.Moved() }

// Moved reports whether a transaction has failed as the tenant has moved, or as a table is gone.
// Then the tables that Citus shows are to be named, until the place was read anew.
func (s *PlacedTables) Moved() bool { return s.moved.Load() }

// Refused reports whether the worker refused a statement that named one of the tables for want of a
// right. Citus may judge by other roles than the worker has, or owners have changed since.
func (s *PlacedTables) Refused() bool { return s.refused.Load() }

// refusedPlace is a refusal at the worker.
type refusedPlace struct{ error }

func (e *refusedPlace) Unwrap() error { return e.error }

// note takes notice of an error.
func (s *PlacedTables) note(err error) error {
	switch State(err) {
	case pgerrcode.UndefinedTable, pgerrcode.UndefinedObject, pgerrcode.InternalError:
		s.moved.Store(true)
	case pgerrcode.InsufficientPrivilege:
		s.refused.Store(true)
		s.moved.Store(true)
		if errors.As(err, new(*refusedPlace)) {
			return err
		}
		return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: &refusedPlace{err},
			Message: "the worker that has " + s.schema + " refused the tenant's role " +
				"or, without roles, the user of DATABASE_URL, a right; try again"}
	}
	return err
}

// The statements that each transaction begins with. The lock has mode 5, ShareLock, as that of
// Citus' writers: it stops moves, and a move stops it. The second statement must see all that was
// committed before the first one had the lock, so they can't be one. Plans for all parameters are
// made where all statements name the tables here: Citus can't make them for all others.
const (
	planOnce    = "force_generic_plan"
	planAnyTime = "auto"

	keepPlaceSQL = `SELECT set_config('plan_cache_mode', $1, true),
  lock_shard_metadata(5, ARRAY[$2::bigint])`
	lookAtPlaceSQL = `SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_dist_placement
  JOIN pg_dist_local_group USING (groupid) WHERE shardid = $1::bigint) THEN $2::text::regclass END`

	// These two do the same on connections that wait for locks for longer than for the place.
	keepPlaceSoonSQL = `SELECT set_config('plan_cache_mode', $1, true),
  set_config('asyncflow.lock_timeout', current_setting('lock_timeout'), true),
  set_config('lock_timeout', $3, true), lock_shard_metadata(5, ARRAY[$2::bigint])`
	lookAtPlaceSoonSQL = lookAtPlaceSQL +
		`, set_config('lock_timeout', current_setting('asyncflow.lock_timeout'), true)`
)

// planModeSQL sets how the rest of a transaction is planned.
const planModeSQL = `SELECT set_config('plan_cache_mode', $1, true)`

// absent is the name of a table that never exists. A look for it fails as one for a table that was
// dropped, which callers know.
func (s *PlacedTables) absent() string {
	return Quote("the schema " + s.schema + " has left this worker")
}

// queue adds the statements that each transaction begins with to a batch. patience is how long they
// wait for the place; "": as long as for any lock.
func (s *PlacedTables) queue(b *pgx.Batch, shown bool, patience string) {
	mode := planOnce
	if shown {
		mode = planAnyTime
	}
	if patience == "" {
		b.Queue(keepPlaceSQL, mode, s.one)
		b.Queue(lookAtPlaceSQL, s.one, s.absent())
	} else {
		b.Queue(keepPlaceSoonSQL, mode, s.one, patience)
		b.Queue(lookAtPlaceSoonSQL, s.one, s.absent())
	}
}

// CanPlaceSQL reports whether a worker has what PlacedTables name of Citus.
const CanPlaceSQL = `SELECT to_regclass('pg_catalog.pg_dist_placement') IS NOT NULL
  AND to_regclass('pg_catalog.pg_dist_local_group') IS NOT NULL
  AND to_regproc('pg_catalog.shard_name') IS NOT NULL
  AND to_regprocedure('pg_catalog.lock_shard_metadata(integer,bigint[])') IS NOT NULL`

// nameAll makes the statements of a batch name the tables here, and reports whether some stay.
func (s *PlacedTables) nameAll(
	ctx context.Context, conn *pgx.Conn, b *pgx.Batch,
) (shown bool, err error) {
	texts := make([]placedText, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		texts[i].sql = q.SQL
	}
	if err := s.rename(ctx, conn, texts); err != nil {
		return false, err
	}
	for i, q := range b.QueuedQueries {
		q.SQL = texts[i].sql
		shown = shown || texts[i].shown
	}
	return shown, nil
}

// nameOne returns a statement that names the tables here.
func (s *PlacedTables) nameOne(
	ctx context.Context, conn *pgx.Conn, sql string,
) (placedText, error) {
	texts := []placedText{{sql: sql}}
	err := s.rename(ctx, conn, texts)
	return texts[0], err
}

// rename makes statements name the tables here. A name that the worker doesn't know stays as it is:
// the statement fails, unless there is such a table by then.
func (s *PlacedTables) rename(ctx context.Context, conn *pgx.Conn, texts []placedText) error {
	s.mu.Lock()
	unknown := map[string]bool{}
	var left []int
	for i, text := range texts {
		if known, ok := s.texts[text.sql]; ok {
			texts[i] = known
			continue
		}
		left = append(left, i)
		for _, name := range s.named.FindAllStringSubmatch(text.sql, -1) {
			if _, ok := s.names[tableOf(name)]; !ok {
				unknown[tableOf(name)] = true
			}
		}
	}
	s.mu.Unlock()
	if len(left) == 0 {
		return nil
	}
	if err := s.learn(ctx, conn, unknown); err != nil {
		return fmt.Errorf("find the tables of %s: %w", s.schema, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range left {
		texts[i] = s.replace(texts[i].sql)
	}
	return nil
}

// tableOf returns the name of the table in a match of named.
func tableOf(match []string) string {
	if match[2] != "" {
		return match[2]
	}
	return strings.ReplaceAll(match[1], `""`, `"`)
}

// replace returns a statement that names the tables here, and keeps it if it knows all names. s.mu
// is held.
func (s *PlacedTables) replace(sql string) (text placedText) {
	all := true
	var renamed strings.Builder
	end := 0
	for _, at := range s.named.FindAllStringSubmatchIndex(sql, -1) {
		if at[0] < end { // it is a part of what was written already
			continue
		}
		found := s.named.FindStringSubmatch(sql[at[0]:at[1]])
		table, ok := s.names[tableOf(found)]
		all = all && ok
		text.shown = text.shown || table.writes
		renamed.WriteString(sql[end:at[0]])
		end = at[1]
		switch {
		case table.name == "":
			renamed.WriteString(found[0])
		case table.numbers && insertInto.MatchString(sql[:at[0]]):
			columns := insertSelect.FindStringSubmatch(sql[end:])
			if columns == nil || table.next == "" ||
				distinct.MatchString(sql[end+len(columns[0]):]) {
				return s.keep(sql, placedText{sql: sql, shown: true}, all)
			}
			fmt.Fprintf(&renamed, "%s (%s, %s) SELECT %s, ", table.name, table.column, columns[1],
				table.next)
			end += len(columns[0])
		default:
			renamed.WriteString(table.name)
		}
	}
	text.sql = renamed.String() + sql[end:]
	return s.keep(sql, text, all)
}

// keep keeps what became of a statement if all of its names are known, and returns it. s.mu is
// held.
func (s *PlacedTables) keep(sql string, text placedText, all bool) placedText {
	if all {
		if len(s.texts) >= placedTexts {
			clear(s.texts)
		}
		s.texts[sql] = text
	}
	return text
}

var (
	insertInto = regexp.MustCompile(`(?i)\bINSERT\s+INTO\s+$`)
	// insertSelect is what follows the name of a table in an INSERT … SELECT that names columns. In
	// one with DISTINCT the numbers would differ.
	insertSelect = regexp.MustCompile(`(?i)^\s*\(([^()]*)\)\s*SELECT\s+(?:ALL\s+)?`)
	distinct     = regexp.MustCompile(`(?i)^DISTINCT\b`)
)

// placedNamesSQL returns the qualified, quoted names of tables of a schema, whether Citus numbers
// their rows, and by what; "" for functions, and whether they may write.
const placedNamesSQL = `
SELECT c.relname::text, shard_name(c.oid, s.shardid), a.attname IS NOT NULL OR d.numbers,
  coalesce(quote_ident(a.attname), ''),
  coalesce(format('nextval(%L::regclass)',
    pg_get_serial_sequence(c.oid::regclass::text, a.attname)), ''), false
FROM pg_class c JOIN pg_dist_shard s ON s.logicalrelid = c.oid
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attidentity <> ''
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_attrdef WHERE adrelid = c.oid
  AND pg_get_expr(adbin, adrelid) LIKE '%nextval(%')) d (numbers)
WHERE c.relnamespace = $1::text::regnamespace AND c.relname = ANY($2::text[])
UNION ALL
SELECT proname::text, '', false, '', '', bool_or(provolatile = 'v') FROM pg_proc
WHERE pronamespace = $1::text::regnamespace AND proname = ANY($2::text[]) GROUP BY proname`

// learn asks the worker for the names of tables.
func (s *PlacedTables) learn(ctx context.Context, conn *pgx.Conn, unknown map[string]bool) error {
	if len(unknown) == 0 {
		return nil
	}
	rows, _ := conn.Query(ctx, placedNamesSQL, Quote(s.schema),
		slices.Collect(maps.Keys(unknown)))
	found := map[string]placedName{}
	var name string
	var here placedName
	into := []any{&name, &here.name, &here.numbers, &here.column, &here.next, &here.writes}
	_, err := pgx.ForEachRow(rows, into, func() error {
		found[name] = here
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names)+len(found) > placedNames {
		s.forget()
	}
	maps.Copy(s.names, found)
	return err
}
