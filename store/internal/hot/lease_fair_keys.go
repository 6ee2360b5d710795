package hot

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
)

// A lease of a fair type finds keys with due tasks in one of two ways. While few tasks are due, it
// reads all of them: so it knows all keys, and passes none with only tasks that are due later.
// While more are due, it goes from key to key by the index (type, key, order_time, id), from the
// last turn on, until it found a key for each of its tasks, or the ring is round. It passes
// mostIdle keys without a due task at most, and the next lease goes on from there: see
// lease_fair_fill.go. So no statement grows with the number of keys or tasks.

// fairSource is a table with due tasks: the ready table at a position, or wait for a stage.
type fairSource struct {
	position int
	stage    string // "": it is a ready table
}

// liveSources returns the ready tables with due tasks.
func liveSources(t *config.Type) (all []fairSource) {
	for _, p := range t.Live() {
		all = append(all, fairSource{position: p})
	}
	return all
}

// from returns the rows of the source as the rest of a SELECT, with the type $1; stage is the
// parameter with the stages.
func (s fairSource) from(t *config.Type, i int, stage string) string {
	if s.stage == "" {
		return t.SetAt(s.position).Tables.Ready(s.position) + ` WHERE type = $1 AND ` +
			stage + `::text[] IS NOT NULL`
	}
	return `{wait} WHERE type = $1 AND until = 'infinity' AND reason <> 'flow_key'
		AND stage = (` + stage + `::text[])[` + strconv.Itoa(i+1) + `]`
}

// stagesOf returns the stages of sources, in their order.
func stagesOf(sources []fairSource) []string {
	all := make([]string, len(sources))
	for i, s := range sources {
		all[i] = s.stage
	}
	return all
}

// findKeys makes the ring of the lease.
func (f *fairTake) findKeys(ctx context.Context) error {
	if !f.memory.backlog {
		few, err := f.readDue(ctx)
		if err != nil || few {
			return err
		}
		f.memory.backlog = true
	}
	f.least = time.Time{}
	if known, err := f.readMarked(ctx); known || err != nil {
		return err
	}
	return f.skipAhead(ctx)
}

// mostDue is how many due tasks a lease of n reads to know their keys.
func mostDue(n int) int { return max(100, 2*n) }

// readDue reads the keys of the due tasks. It reports whether these are few.
func (f *fairTake) readDue(ctx context.Context) (few bool, err error) {
	t := f.l.t
	selects := make([]string, len(f.sources))
	for i, s := range f.sources {
		selects[i] = `(SELECT coalesce(key, '') AS key FROM ` + s.from(t, i, "$4") + `
			AND order_time <= $2 AND order_time >= $3 ORDER BY order_time, id LIMIT $5)`
	}
	most := mostDue(f.l.n)
	rows, err := f.l.conn.Query(ctx, t.SQL(0, `SELECT key, count(*) FROM (
		`+strings.Join(selects, " UNION ALL ")+`) due GROUP BY key ORDER BY key > $6 DESC, key`),
		t.Number(), f.l.now, lowwater.Bound(f.least), stagesOf(f.sources), most, f.start.key)
	if err != nil {
		return false, err
	}
	var keys []string
	var key string
	var n, sum int
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		keys = append(keys, key)
		sum += n
		return nil
	})
	f.ring = f.wholeRing(keys, f.start)
	return sum < most, err
}

// wholeRing returns the ring of all keys with due tasks, after the last turn. The keys behind the
// last one come first.
func (f *fairTake) wholeRing(keys []string, last turn) *ring {
	if i := slices.Index(keys, last.key); i >= 0 { // after all others, or once more
		keys = slices.Delete(keys, i, i+1)
		if last.left > 0 {
			keys = slices.Insert(keys, 0, last.key)
		} else {
			keys = append(keys, last.key)
		}
	}
	return newRing(keys, f.l.t.Flow.Weight, true, last)
}

// skipAhead finds keys by the index.
func (f *fairTake) skipAhead(ctx context.Context) error {
	t := f.l.t
	most := f.marks.mostKeys(f.l.n)
	rows, err := f.l.conn.Query(ctx, t.SQL(0, skipSQL(t, f.sources)), t.Number(), f.start.key,
		f.l.now, most, mostIdle, stagesOf(f.sources))
	if err != nil {
		return err
	}
	var keys []string
	var key string
	var part, idle, due int
	var isDue, again bool
	f.passed = f.start.key
	_, err = pgx.ForEachRow(rows, []any{&part, &key, &isDue, &idle, &due}, func() error {
		switch {
		case part == 0:
			again = isDue && f.start.left > 0
			if again {
				keys = append(keys, key)
			}
			return nil
		case again && key == f.start.key: // it is the first one already
			return nil
		case isDue:
			keys = append(keys, key)
		}
		f.passed = key
		return nil
	})
	f.ring = newRing(keys, t.Flow.Weight, idle < mostIdle && due < most, f.start)
	f.marks.walked(keys, f.ring.whole && len(f.sources) == 1)
	return err
}

// nextKey returns the first key that meets a condition, with its first order_time.
func nextKey(t *config.Type, sources []fairSource, condition string) string {
	selects := make([]string, len(sources))
	for i, s := range sources {
		selects[i] = `(SELECT key, order_time FROM ` + s.from(t, i, "$6") + ` AND ` + condition + `
			ORDER BY key, order_time, id LIMIT 1)`
	}
	if len(selects) == 1 {
		return selects[0]
	}
	return `(SELECT * FROM (` + strings.Join(selects, " UNION ALL ") +
		`) s ORDER BY key, order_time LIMIT 1)`
}

// skipSQL goes from key to key after the key $2, then from the first one up to it. It ends with $4
// keys with due tasks, or $5 without. The first row is the key $2 itself. Each step is one walk
// down the index of each source: the first row of a key is its first task in order.
func skipSQL(t *config.Type, sources []fairSource) string {
	step := `n.order_time <= $3, %[1]s.idle + (n.order_time > $3)::int,
		%[1]s.due + (n.order_time <= $3)::int`
	return `
WITH RECURSIVE ahead (key, is_due, idle, due) AS (
  SELECT $2::text, coalesce((SELECT order_time <= $3 FROM ` +
		nextKey(t, sources, `key BETWEEN $2::text AND $2::text`) + ` h), false), 0, 0
  UNION ALL
  SELECT n.key, ` + fmt.Sprintf(step, "a") + `
  FROM ahead a, LATERAL ` + nextKey(t, sources, `key > a.key`) + ` n
  WHERE a.idle < $5 AND a.due < $4),
behind (key, is_due, idle, due) AS (
  SELECT n.key, ` + fmt.Sprintf(step, "s") + `
  FROM (SELECT max(idle) AS idle, max(due) AS due FROM ahead) s,
    LATERAL ` + nextKey(t, sources, `key >= ''`) + ` n
  WHERE s.idle < $5 AND s.due < $4 AND n.key <= $2
  UNION ALL
  SELECT n.key, ` + fmt.Sprintf(step, "b") + `
  FROM behind b, LATERAL ` + nextKey(t, sources, `key > b.key`) + ` n
  WHERE b.idle < $5 AND b.due < $4 AND n.key <= $2)
SELECT (idle + due > 0)::int AS part, * FROM ahead
UNION ALL
SELECT 2, * FROM behind
ORDER BY part, idle, due`
}

// dueOfKeySQL ends a statement that takes or counts the due tasks of the key u.key, in order, from
// one order_time until another. Only the index with the keys has its order. With `key = u.key` and
// ORDER BY order_time, the index (type, order_time, id) has it, too. To the planner, which knows
// nothing of these tables, that costs the same, and less while it is one level lower: with keys of
// 36 bytes from 8,000 tasks to 50,000. By it, a lease would read all due tasks for each key.
const dueOfKeySQL = `key IS NOT NULL
	AND (key, order_time) >= (u.key, %s) AND (key, order_time) <= (u.key, %s)
	ORDER BY key, order_time, id`

// splitSQL counts in which sources the first due tasks of keys are.
func splitSQL(t *config.Type, sources []fairSource) string {
	selects := make([]string, len(sources))
	for i, s := range sources {
		selects[i] = fmt.Sprintf(`(SELECT %d AS source, order_time, id FROM %s AND `+dueOfKeySQL+`
			LIMIT u.most)`, i, s.from(t, i, "$6"), "$5", "$4")
	}
	return `
SELECT u.i, x.source, count(*)
FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS u (key, most, i), LATERAL (
  SELECT source FROM (` + strings.Join(selects, " UNION ALL ") + `) s
  ORDER BY order_time, id LIMIT u.most) x
GROUP BY u.i, x.source`
}

// queueTake takes the first due tasks of keys from the source: of each key up to its number.
func (s fairSource) queueTake(b *pgx.Batch, f *fairTake, keys []string, most []int) {
	if !slices.ContainsFunc(most, func(n int) bool { return n > 0 }) {
		return
	}
	t := f.l.t
	table, position, collect := "{ready}", s.position, f.c.collectReady
	if s.stage != "" {
		table, position, collect = "{wait}", 0, f.c.collect
	}
	b.Queue(t.SQL(position, `
DELETE FROM `+table+` r WHERE ctid = ANY (ARRAY(
  SELECT k.t FROM unnest($2::text[], $3::int[], $5::timestamptz[]) AS u (key, most, least),
    LATERAL (
    SELECT ctid AS t FROM `+s.from(t, 0, "$6")+` AND `+
		fmt.Sprintf(dueOfKeySQL, "u.least", "$4")+`
    LIMIT u.most
    FOR UPDATE SKIP LOCKED) k))
RETURNING r.id, r.seq, r.stage, r.attempt, r.order_time, coalesce(r.since, r.order_time),
  coalesce(r.key, '')`), t.Number(), keys, most, f.l.now, f.marks.bounds(keys, f.least),
		[]string{s.stage}).Query(collect)
}
