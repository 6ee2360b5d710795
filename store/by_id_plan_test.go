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

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// byIDRows are the rows of a type in each table, as many tasks as byIDAsked are asked for.
const (
	byIDRows  = 40_000
	byIDAsked = 10
	// byIDPages is how many pages a statement may read for each of these. Most read some 10. The
	// smallest table takes 290.
	byIDPages = 28
)

// fillByID fills all tables that statements find rows in by their ids.
func (b *bundle) fillByID() {
	b.t.Helper()
	const n = `(1::bigint << 40) + n`
	for _, sql := range []string{
		`{task} (type, id, created_at, order_time, context) SELECT {number}, ` + n + `, now(), now(), '1'`,
		`{journal} (type, id, seq, at, stage, attempt, outcome)
		SELECT {number}, ` + n + `, 1, now(), 'first', 1, 'failed'`,
		`{wait} (type, id, seq, stage, attempt, order_time, until, reason, key)
		SELECT {number}, ` + n + `, 1, 'first', 1, now(), now() + interval '1 h', 'delayed', n::text`,
		`{ready} (type, id, seq, stage, attempt, order_time, key)
		SELECT {number}, ` + n + `, 1, 'first', 1, '2026-01-01'::timestamptz, n::text`,
		`{lease} (type, id, seq, stage, attempt, node, leased_at, until, key)
		SELECT {number}, ` + n + `, 1, 'first', 1, 'n', now(), now() + interval '1 h', n::text`,
		`{checkpoints} (type, id, seq, stage, written_at, check_at, document)
		SELECT {number}, ` + n + `, 1, 'first', now(), now(), '1'`,
		`{lifetimes} (type, id, expires_at) SELECT {number}, ` + n + `, now()`,
		`{keys} (type, key, id, expires_at, hash) SELECT 'pipe', n::text, ` + n + `, now(), ''`,
		`{signal_waits} (type, id, signal, since, until)
		SELECT {number}, ` + n + `, 's', now(), now()`,
		`{edges} (type, id, n, on_type, on_id, on_key, on_failure)
		SELECT {number}, ` + n + `, 0, {number}, CASE WHEN n % 2 = 0 THEN ` + n + ` END, n::text, 'fail'`,
		`{votes} (type, claimer, key) SELECT {number}, 'a', n::text`,
		`{fan_outs} (type, id, seq, waits, stage, rule, count)
		SELECT {number}, ` + n + `, 1, 1, 'first', '{}', 1`,
		`{spawns} (type, id, seq, depth, count, hash, tasks)
		SELECT {number}, ` + n + `, 1, 1, 1, '', '[]'`,
		`{notifications} (type, id, seq, target, task) SELECT {number}, ` + n + `, 1, 1, 1`,
		`{past_keys} (type, key, id) SELECT {number}, n::text, ` + n,
		`{content_waits} (type, id, since) SELECT {number}, ` + n + `, now()`,
		`{blocks} (type, key, id) SELECT 'pipe', n::text, ` + n,
		`{outbox} (kind, due, type, id) SELECT 'final', now(), {number}, ` + n,
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

// byIDTx begins a transaction that finds rows by ids. On another connection than a hot one, it pins
// its plans.
func byIDTx(t *testing.T, conn *pgxpool.Conn, pinned bool) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	if pinned {
		require.NoError(t, store.Pin(t.Context(), tx))
	}
	return tx
}

// pagesOf runs a prepared statement some times, takes back what it did, and returns the number of
// pages that its last run read, with its plan. The second run of a delete finds the rows missing.
func pagesOf(t *testing.T, tx pgx.Tx, sql string, runs int) (n int, plan string) {
	t.Helper()
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

// However many tasks there are of a type, a statement that is given ids reads the rows of these
// tasks only: whatever the planner believes of the tables.
func TestRowsAreFoundByIDs(t *testing.T) {
	longform.Costly(t)
	pgtest.NotOnCitus(t, otherPlan)
	b := setup(t)
	spec := twoStages()
	spec.Searchable = []string{"user"} // its rolls come with a table of what is found by it
	pipe := b.put(spec)
	pools := map[string]*pgxpool.Pool{"hot": b.hotPool(), "base": b.db.Pool}
	for _, state := range []string{"never analysed", "empty"} {
		if state == "empty" {
			for _, table := range []string{"task", "journal", "wait", "ready", "lease",
				"checkpoints", "lifetimes", "keys", "signal_waits", "edges", "votes", "fan_outs",
				"spawns", "notifications", "past_keys", "content_waits", "outbox", "blocks"} {
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
			tx := byIDTx(t, conn, pool == "base")
			for name, c := range store.ByIDSQL { // planned while the tables are empty
				_, err := tx.Exec(t.Context(), fill(pipe, 1, `PREPARE "`+name+`" AS `+c.SQL))
				require.NoError(t, err, name)
				_, err = tx.Exec(t.Context(),
					fill(pipe, 1, `EXPLAIN EXECUTE "`+name+`" (`+byIDArgs(c.Args)+`)`))
				require.NoError(t, err, name)
			}
			require.NoError(t, tx.Commit(t.Context()))
		}
		b.fillByID()
		for pool, conn := range conns {
			for name, c := range store.ByIDSQL {
				t.Run(state+": "+pool+": "+name, func(t *testing.T) {
					for runs := 1; runs <= 2; runs++ {
						tx := byIDTx(t, conn, pool == "base")
						pages, plan := pagesOf(t, tx, fill(pipe, 1, `EXPLAIN (ANALYZE, BUFFERS)
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

// Hot connections, follow-ups and jobs write to the tables of live tasks by ids only with pinned
// plans.
func TestWritersByIDsArePinned(t *testing.T) {
	b := setupFanOut(t)
	b.exec(`CREATE TABLE public.writers (what text)`)
	b.exec(`GRANT INSERT ON public.writers TO PUBLIC`)
	b.exec(`CREATE FUNCTION public.note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_user <> session_user AND (current_setting('plan_cache_mode') <>
		  'force_generic_plan' OR current_setting('enable_seqscan') <> 'off') THEN
		  INSERT INTO public.writers VALUES (format('%s of %s', TG_OP, TG_TABLE_NAME));
		END IF;
		RETURN NULL;
	END $$`)
	for _, table := range []string{"wait", "lease", "ready_1", "edges", "fan_outs", "checkpoints",
		"journal_1"} {
		b.exec(`CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON tenant_acme.` + table + `
			FOR EACH STATEMENT EXECUTE FUNCTION public.note_writer()`)
	}
	pipe := b.known()
	b.fanOut(asyncflow.FanOut{})
	for _, l := range b.leaseAll(pipe, 2) {
		b.settle(pipe, l, goodEnd)
	}
	b.followUp()
	late := b.leaseAll(pipe, 1)[0] // the parent goes on, and its node dies
	b.exec(`INSERT INTO tenant_acme.checkpoints (type, id, seq, stage, written_at, check_at, document)
		VALUES ($1, $2, 1, 'first', now(), now() - interval '1 h', '1')`, pipe.Number(),
		late.ID.Number)
	b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 h'`)
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = b.ForgetCheckpoints(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	var writers []string
	rows, _ := b.db.Query(t.Context(), `SELECT DISTINCT what FROM public.writers`)
	writers, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Empty(t, writers)
}
