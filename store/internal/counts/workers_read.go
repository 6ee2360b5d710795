package counts

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A journal only grows at its end, so the attempts of the last minutes are in its last blocks, of
// 8 KiB each. No index leads to them, as each task would pay for it. A report reads the last blocks
// of the journals of the newest rolls. If these don't go back to its time, it goes on with every
// second block, then with every fourth one and so on: so it sees all of the time, the latest part
// best, and its cost doesn't grow with the number of attempts. Types share journals: how far blocks
// go back is judged by the rows of all types.
const (
	// workerTables is how many journals a report reads.
	workerTables = 32
	// workerBlocks is how many blocks it reads of each distance, of all journals together; with
	// many journals, fewBlocks of each.
	workerBlocks = 64
	fewBlocks    = 4
	// blockRows is more than the rows that a block has: the shortest takes 76 bytes.
	blockRows = 110
	// workerLeases is how many running tasks it reads, and workerTime for how long.
	workerLeases = 20_000
	// workerEnd is for how long a report waits beyond that, if the database doesn't end a query.
	workerTime = 2 * time.Second
	workerEnd  = time.Second
)

// workerAttempt is an attempt that ended, and workerRun are tasks that a worker has now.
type (
	workerAttempt struct {
		key     WorkerKey
		outcome asyncflow.OutcomeKind
		at      time.Time
		seconds float32
	}
	workerRun struct {
		key   WorkerKey
		tasks int
		since time.Time // of the oldest
		seen  time.Time // of the latest sign of life; zero: none
	}
)

// readWorkers reads the running tasks and the latest attempts.
func (s *Counts) readWorkers(
	ctx context.Context, tenant string, f WorkerFilter,
) (*workerGroups, error) {
	types, err := s.typesOf(ctx, tenant, f.Type)
	if err != nil || len(types) == 0 {
		return &workerGroups{filter: f}, err
	}
	g := &workerGroups{filter: f, types: map[int32]*config.Type{},
		workers: map[WorkerKey]*Worker{}, ends: map[workerStage][]time.Time{},
		sizeOf: func(relation string) string { return s.core.SizeSQL(tenant, relation, false) }}
	for _, t := range types {
		g.types[t.Number()] = t
	}
	ends := time.Now().Add(workerTime)
	bound, cancel := context.WithDeadline(ctx, ends.Add(workerEnd))
	defer cancel()
	db := s.core.DB(tenant)
	read := func(collect func(pgx.Rows) error, sql string, args ...any) error {
		return db.QueryWithin(bound, time.Until(ends), collect, sql, args...)
	}
	err = g.readAll(read, types)
	late := postgres.State(err) == pgerrcode.QueryCanceled || bound.Err() != nil
	if (late || isLocked(err)) && ctx.Err() == nil {
		g.sampled = true
		return g, nil
	}
	return g, err
}

// typesOf returns a type, or with "" all types of a tenant, by their names.
func (s *Counts) typesOf(
	ctx context.Context, tenant, name string,
) (types []*config.Type, err error) {
	if name != "" {
		t, err := s.core.Catalog.Fresh(ctx, tenant, name)
		return []*config.Type{t}, err
	}
	all := s.core.Catalog.TypesOf(tenant)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		types = append(types, all[name])
	}
	return types, nil
}

// isLocked reports whether a query found a table locked.
func isLocked(err error) bool { return postgres.State(err) == pgerrcode.LockNotAvailable }

// reader runs a query, within the time of a report.
type reader func(collect func(pgx.Rows) error, sql string, args ...any) error

// readAll reads the running tasks, and then the journals.
func (g *workerGroups) readAll(read reader, types []*config.Type) error {
	if err := g.readRunning(read, types[0]); err != nil {
		return err
	}
	journals, err := g.journals(read, types[0], journalsOf(types))
	if err != nil {
		return err
	}
	if len(journals) > workerTables {
		g.sampled = true
		journals = journals[:workerTables]
	}
	dense := max(fewBlocks, workerBlocks/max(len(journals), 1))
	for _, j := range journals {
		err := g.readJournal(read, j, dense)
		switch {
		case config.RolledOn(err): // its roll was just dropped
		case isLocked(err):
			g.sampled = true
		case err != nil:
			return err
		}
	}
	return nil
}

// runningSQL reads who has the running tasks of the types $1: up to $2 of them.
const runningSQL = `
SELECT type, stage, coalesce(worker, ''), coalesce(sent_to, endpoint)::text, coalesce(claimer, ''),
  count(*), min(leased_at), max(greatest(beat_at,
    CASE WHEN worker IS NOT NULL OR claimer IS NOT NULL THEN leased_at END)),
  (sum(count(*)) OVER ())::bigint
FROM (SELECT * FROM {lease} WHERE type = ANY ($1::int[]) AND unsent IS NOT TRUE LIMIT $2) l
GROUP BY 1, 2, 3, 4, 5`

// readRunning reads the running tasks. It leaves them out if their table is locked, for which it
// asks for the size: runningSQL could wait for the lock when it is prepared, without the limits of
// its transaction.
func (g *workerGroups) readRunning(read reader, one *config.Type) error {
	err := read(func(rows pgx.Rows) error { rows.Close(); return rows.Err() },
		`SELECT `+g.sizeOf("to_regclass($1)"), one.Set().Tables.Qualify("lease"))
	if isLocked(err) {
		g.sampled = true
		return nil
	}
	if err != nil {
		return err
	}
	var number int32
	var r workerRun
	var endpoint *string
	var seen *time.Time
	var all int
	into := []any{&number, &r.key.Stage, &r.key.Name, &endpoint, &r.key.Claimer, &r.tasks,
		&r.since, &seen, &all}
	err = read(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error {
			t := g.types[number]
			r.key.Type = t.Name
			r.key.URL = t.EndpointURL(t.RunsAt(asyncflow.Lease{Stage: r.key.Stage,
				Claimer: r.key.Claimer, LeasedAt: r.since}, endpoint))
			r.seen = postgres.OrZero(seen)
			g.addRunning(r)
			return nil
		})
		return err
	}, one.SQL(0, runningSQL), slices.Sorted(maps.Keys(g.types)), workerLeases)
	g.allRunning = err == nil && all < workerLeases
	g.sampled = g.sampled || !g.allRunning
	return err
}

// journalTable is the journal of a roll.
type journalTable struct {
	set      *config.TableSet
	position int
	blocks   int64
}

// journalsSQL returns which of the journals $1, of the sets $2 and positions $3, have something to
// read, and how many blocks. A roll that is idle since before $4 has nothing.
const journalsSQL = `
SELECT n - 1, size / current_setting('block_size')::bigint
FROM (SELECT u.n, {size} AS size
  FROM unnest($1::text[], $2::text[], $3::int[]) WITH ORDINALITY AS u (name, s, p, n)
  JOIN {rolls} r ON r.table_set = u.s AND r.position = u.p
  WHERE coalesce(r.idle_since >= $4, true) OFFSET 0) j
WHERE size > 0 ORDER BY n`

// journals returns which of some journals have something to read, in the same order. If one is
// locked, it asks for both halves, and so on: only the locked ones are left out.
func (g *workerGroups) journals(
	read reader, one *config.Type, all []journalTable,
) (found []journalTable, err error) {
	names := make([]string, len(all))
	sets := make([]string, len(all))
	positions := make([]int32, len(all))
	for i, j := range all {
		names[i] = j.set.Tables.Journal(j.position)
		sets[i] = j.set.Name
		positions[i] = int32(j.position)
	}
	sql := strings.Replace(journalsSQL, "{size}", g.sizeOf("to_regclass(u.name)"), 1)
	var n int
	var blocks int64
	err = read(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n, &blocks}, func() error {
			all[n].blocks = blocks
			found = append(found, all[n])
			return nil
		})
		return err
	}, one.SQL(0, sql), names, sets, positions, g.filter.Since)
	switch {
	case !isLocked(err):
		return found, err
	case len(all) == 1:
		g.sampled = true
		return nil, nil
	}
	half := len(all) / 2
	first, err := g.journals(read, one, all[:half])
	if err != nil {
		return nil, err
	}
	second, err := g.journals(read, one, all[half:])
	return append(first, second...), err
}

// journalsOf returns the journals of types, the newest rolls first.
func journalsOf(types []*config.Type) (all []journalTable) {
	type key struct {
		set      string
		position int
	}
	known := map[key]bool{}
	for _, t := range types {
		for _, p := range t.Rolls() {
			set := t.SetAt(p)
			if !known[key{set.Name, p}] {
				known[key{set.Name, p}] = true
				all = append(all, journalTable{set: set, position: p})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b journalTable) int {
		return cmp.Compare(a.set.End-a.position, b.set.End-b.position)
	})
	return all
}

// endedSQL reads the attempts of the types $1 since $4 in the blocks $2 of a journal, each place of
// a block by its address. A row of type 0 says that the blocks have a row from before $4.
const endedSQL = `
WITH read AS MATERIALIZED (SELECT type, stage, outcome, at, duration, endpoint
  FROM {journal} WHERE ctid = ANY (ARRAY(SELECT ('(' || b || ',' || n || ')')::tid
    FROM unnest($2::bigint[]) AS b, generate_series(1, $3::int) AS n)))
SELECT type, stage, outcome, at, coalesce(duration, 0), coalesce(endpoint, '')
FROM read WHERE type = ANY ($1::int[]) AND at >= $4
  AND outcome IN ('done', 'failed', 'rejected', 'snoozed', 'lost')
UNION ALL (SELECT 0, '', '', at, 0, '' FROM read WHERE at < $4 LIMIT 1)`

// readJournal reads the last blocks of a journal, and a sample of the others if these don't go back
// far enough.
func (g *workerGroups) readJournal(read reader, j journalTable, dense int) error {
	blocks := sampleBlocks(j.blocks, dense)
	last := blocks[:min(dense, len(blocks))]
	over, err := g.readBlocks(read, j, last)
	if err != nil || over || len(last) == len(blocks) {
		return err
	}
	g.sampled = true
	_, err = g.readBlocks(read, j, blocks[len(last):])
	return err
}

// sampleBlocks returns which blocks to read of so many: the last ones, then every second one, then
// every fourth one, the same number of each.
func sampleBlocks(blocks int64, each int) (sample []int64) {
	step := int64(1)
	for block := blocks - 1; block >= 0; block -= step {
		sample = append(sample, block)
		if len(sample)%each == 0 {
			step *= 2
		}
	}
	return sample
}

// readBlocks reads blocks of a journal. over reports whether they go back beyond the time of the
// report.
func (g *workerGroups) readBlocks(
	read reader, j journalTable, blocks []int64,
) (over bool, err error) {
	var number int32
	var a workerAttempt
	var stage, location string
	into := []any{&number, &stage, &a.outcome, &a.at, &a.seconds, &location}
	err = read(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error {
			if number == 0 {
				over = true
				return nil
			}
			a.key = WorkerKey{Type: g.types[number].Name, Stage: stage}
			a.key.URL, _, a.key.Name = asyncflow.ParseRunLocation(location)
			if claimer, _ := asyncflow.ClaimerOf(a.key.URL); claimer != "" {
				a.key.URL, a.key.Claimer = "", claimer
			}
			g.addAttempt(a)
			return nil
		})
		return err
	}, j.set.Tables.SQL(j.position, endedSQL), slices.Sorted(maps.Keys(g.types)), blocks, blockRows,
		g.filter.Since)
	return over, err
}
