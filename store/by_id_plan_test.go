package store_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// byIDRows are the rows of a type in each table, as many tasks as byIDAsked are asked for.
const (
	byIDRows  = 100_000
	byIDAsked = 100
	// byIDPages is how many pages a statement may read for each of these. It reads some 10.
	byIDPages = 25
)

// fillByID fills all tables that statements find rows in by their ids.
func (b *bundle) fillByID() {
	b.t.Helper()
	const n = `(1::bigint << 40) + n`
	for _, sql := range []string{
		`{task} (type, id, created_at, order_time, context) SELECT {number}, ` + n + `, now(), now(), '1'`,
		`{journal} (type, id, seq, at, stage, attempt, outcome)
		SELECT {number}, ` + n + `, 1, now(), 'first', 1, 'failed'`,
		`{wait} (type, id, seq, stage, attempt, order_time, until, reason)
		SELECT {number}, ` + n + `, 1, 'first', 1, now(), now() + interval '1 h', 'delayed'`,
		`{ready} (type, id, seq, stage, attempt, order_time)
		SELECT {number}, ` + n + `, 1, 'first', 1, '2026-01-01'::timestamptz`,
		`{lease} (type, id, seq, stage, attempt, node, leased_at, until)
		SELECT {number}, ` + n + `, 1, 'first', 1, 'n', now(), now() + interval '1 h'`,
		`{checkpoints} (type, id, seq, stage, written_at, check_at, document)
		SELECT {number}, ` + n + `, 1, 'first', now(), now(), '1'`,
		`{lifetimes} (type, id, expires_at) SELECT {number}, ` + n + `, now()`,
		`{keys} (type, key, id, expires_at, hash) SELECT 'pipe', n::text, ` + n + `, now(), ''`,
		`{signal_waits} (type, id, signal, since, until)
		SELECT {number}, ` + n + `, 's', now(), now()`,
		`{edges} (type, id, n, on_type, on_id, on_key, on_failure)
		SELECT {number}, ` + n + `, 0, {number}, CASE WHEN n % 2 = 0 THEN ` + n + ` END, n::text, 'fail'`,
		`{votes} (type, claimer, key) SELECT {number}, 'a', n::text`,
	} {
		b.exec(b.at(1, `INSERT INTO `+sql+` FROM generate_series(1, $1) n`), byIDRows)
	}
}

// byIDArgs returns the parameters of a statement.
func byIDArgs(args string) string {
	lists := map[string][]string{}
	for n := byIDRows / byIDAsked; n <= byIDRows; n += byIDRows / byIDAsked {
		lists["{ids}"] = append(lists["{ids}"], strconv.Itoa(1<<40+n))
		lists["{keys}"] = append(lists["{keys}"], strconv.Itoa(n))
		lists["{seqs}"] = append(lists["{seqs}"], "1")
		lists["{times}"] = append(lists["{times}"],
			time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Format(`"2006-01-02 15:04:05+00"`))
		lists["{numbers}"] = append(lists["{numbers}"], "{number}")
	}
	for name, list := range lists {
		args = strings.ReplaceAll(args, name, "'{"+strings.Join(list, ",")+"}'")
	}
	return args
}

// A statement that only looks into empty indexes may read no page, and tell none.
const noPages = " Buffers: shared"

var pagesRead = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

// pagesOf runs a prepared statement some times, takes back what it did, and returns the number of
// pages that its last run read, with its plan. The second run of a delete finds the rows missing.
func pagesOf(t *testing.T, conn *pgxpool.Conn, sql string, runs int) (n int, plan string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	for range runs - 1 {
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	rows, _ := tx.Query(t.Context(), sql)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan = strings.Join(lines, "\n")
	require.Contains(t, plan, "Execution Time:")
	for _, part := range pagesRead.FindStringSubmatch(plan + noPages)[1:] {
		pages, _ := strconv.Atoi(part)
		n += pages
	}
	return n, plan
}

// However many tasks a type has, a statement that is given ids reads the rows of these tasks only:
// whatever the planner believes of the tables.
func TestRowsAreFoundByIDs(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	pools := map[string]*pgxpool.Pool{"hot": b.hotPool()}
	for _, state := range []string{"never analysed", "empty"} {
		if state == "empty" {
			for _, table := range []string{"task", "journal", "wait", "ready", "lease",
				"checkpoints", "lifetimes", "keys", "signal_waits", "edges", "votes"} {
				b.exec(b.at(1, `TRUNCATE {`+table+`} CASCADE`))
				b.exec(b.at(1, `VACUUM {`+table+`}`))
			}
		}
		conns := map[string]*pgxpool.Conn{}
		for pool, db := range pools {
			conn, err := db.Acquire(t.Context())
			require.NoError(t, err)
			t.Cleanup(conn.Release) // also after a panic: nobody closes a pool before
			conns[pool] = conn
			for name, c := range store.ByIDSQL { // planned while the tables are empty
				_, err := conn.Exec(t.Context(), fill(pipe, 1, `PREPARE "`+name+`" AS `+c.SQL))
				require.NoError(t, err, name)
				_, err = conn.Exec(t.Context(),
					fill(pipe, 1, `EXPLAIN EXECUTE "`+name+`" (`+byIDArgs(c.Args)+`)`))
				require.NoError(t, err, name)
			}
		}
		b.fillByID()
		for pool, conn := range conns {
			for name, c := range store.ByIDSQL {
				t.Run(state+": "+pool+": "+name, func(t *testing.T) {
					for runs := 1; runs <= 2; runs++ {
						pages, plan := pagesOf(t, conn, fill(pipe, 1, `EXPLAIN (ANALYZE, BUFFERS)
							EXECUTE "`+name+`" (`+byIDArgs(c.Args)+`)`), runs)
						assert.Less(t, pages, byIDPages*byIDAsked, "run %d: %s", runs, plan)
						assert.NotRegexp(t, `Rows Removed by (Join )?Filter: \d{4}`, plan)
					}
				})
			}
			_, err := conn.Exec(t.Context(), `DEALLOCATE ALL`)
			require.NoError(t, err)
		}
	}
}
