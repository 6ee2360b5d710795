package counts

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// BlockedKeys are the ordered flow keys of a type that stand still.
type BlockedKeys struct {
	Count   int
	Longest []asyncflow.BlockedKey // at most MaxAlertKeys, longest first
}

// blockedKeysTime bounds each statement of BlockedKeys: all alerts of the tenant wait for it, and
// the alerts of other tenants.
const blockedKeysTime = 15 * time.Second

// maxWaitingHeads is the most keys of a tenant with a waiting first task that BlockedKeys looks at:
// the keys in which others have waited for longest.
const maxWaitingHeads = 1000

// blockedKeysSQL finds the ordered flow keys in which a task has waited for its turn since before
// $5, of the types with the numbers $1 and the names $2; $3 says which of these let failed tasks
// block, and $4 which park. It reads the tasks in line (100,000 keys took 1.3 to 2.4 s on two busy
// cores), and for each of their keys an index entry of each table. It reads no failed task that
// nobody waits for, so that it doesn't matter how many there have been.
//
// Of each type it returns the keys that a failed task has blocked since before $5: how many there
// are, and the first $6. Then come keys with a first task that waits, or runs again after a failed
// attempt: the first $7 of all types.
const blockedKeysSQL = `
WITH line AS MATERIALIZED (
  SELECT t.type, t.parks, l.key, l.due, b.id, greatest(b.since, l.due) AS since
  FROM unnest($1::int[], $2::text[], $3::boolean[], $4::boolean[]) AS t (type, name, blocks, parks)
  CROSS JOIN LATERAL (
    SELECT w.key, min(coalesce(w.since, w.order_time)) AS due FROM {wait} w
    WHERE w.type = t.type AND w.reason = 'flow_key'
    GROUP BY w.key HAVING min(coalesce(w.since, w.order_time)) <= $5) l
  LEFT JOIN LATERAL (
    SELECT b.id, b.since FROM {blocks} b
    WHERE t.blocks AND b.type = t.name AND b.key = l.key AND b.id > 0
    ORDER BY b.since, b.id LIMIT 1) b ON true),
longest AS (
  SELECT type, key, id, since, count(*) OVER (PARTITION BY type) AS keys,
    row_number() OVER (PARTITION BY type ORDER BY since, key) AS place
  FROM line WHERE id IS NOT NULL AND since <= $5),
heads AS (
  SELECT l.type, l.key, h.id, h.reason, greatest(h.since, l.due) AS since, l.due
  FROM line l CROSS JOIN LATERAL (
    SELECT w.id, w.reason, coalesce(w.since, w.order_time) AS since FROM {wait} w
    WHERE w.type = l.type AND w.key = l.key AND w.reason <> 'flow_key'
      AND w.reason <> 'dependencies' AND (w.reason <> 'delay' OR w.attempt > 1)
      AND (w.attempt > 1 OR w.reason IN ('retry', 'snooze', 'children', 'signal')
        OR coalesce(w.since, w.order_time) <= $5)
      AND NOT (l.parks AND w.reason IN ('retry', 'snooze'))
    UNION ALL
    SELECT e.id, '', e.leased_at FROM {lease} e
    WHERE e.type = l.type AND e.key = l.key AND e.attempt > 1 AND NOT l.parks
    LIMIT 1) h
  WHERE l.id IS NULL
  ORDER BY l.due, l.type, l.key LIMIT $7)
SELECT s.type, s.key, s.id, s.keys::int,
  CASE WHEN e.id IS NOT NULL THEN 'running' WHEN w.id IS NOT NULL THEN 'waiting' ELSE 'failed' END,
  coalesce(w.reason, ''), s.since, s.since
FROM longest s LEFT JOIN {lease} e ON e.type = s.type AND e.id = s.id
  LEFT JOIN {wait} w ON w.type = s.type AND w.id = s.id
WHERE s.place <= $6
UNION ALL
SELECT type, key, id, 0, CASE reason WHEN '' THEN 'running' ELSE 'waiting' END, reason, since, due
FROM heads`

// blockedKey is a row of blockedKeysSQL.
type blockedKey struct {
	asyncflow.BlockedKey
	t    *config.Type
	id   int64
	keys int       // how many keys of its type failed tasks block; 0: it is of another kind
	due  time.Time // since when a task has waited for its turn
}

// BlockedKeys returns the ordered flow keys of a tenant's types that have stood still since before
// a time, although a task was due: because of a failed task, or of a first task that waits. It
// leaves out paused types. With millions of keys it may take too long: CodeUnavailable.
func (s *Counts) BlockedKeys(
	ctx context.Context, tenant string, before time.Time,
) (map[string]BlockedKeys, error) {
	ctx = postgres.Patient(ctx)
	var rows []blockedKey
	err := pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) (err error) {
		_, err = tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`,
			blockedKeysTime.String())
		if err != nil {
			return err
		}
		if rows, err = s.readBlockedKeys(ctx, tx, tenant, before); err != nil {
			return err
		}
		return s.addFirstFailures(ctx, tx, rows)
	})
	if hot.IsUndefinedTable(err) { // a type was deleted, or a roll dropped, a moment ago
		err = nil
	}
	all := map[string]BlockedKeys{}
	slices.SortStableFunc(rows, func(a, b blockedKey) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key))
	})
	counted := map[string]bool{}
	for _, row := range rows {
		if row.Since.After(before) {
			continue
		}
		of := all[row.t.Name]
		switch {
		case row.keys == 0:
			of.Count++
		case !counted[row.t.Name]:
			counted[row.t.Name] = true
			of.Count += row.keys
		}
		if len(of.Longest) < asyncflow.MaxAlertKeys {
			of.Longest = append(of.Longest, row.BlockedKey)
		}
		all[row.t.Name] = of
	}
	return all, postgres.Wrap(err, "BlockedKeys(%q)", tenant)
}

// readBlockedKeys reads the rows of blockedKeysSQL.
func (s *Counts) readBlockedKeys(
	ctx context.Context, tx pgx.Tx, tenant string, before time.Time,
) (all []blockedKey, err error) {
	byNumber := map[int32]*config.Type{}
	var numbers []int32
	var names []string
	var blocks, parks []bool
	for name, t := range s.core.Catalog.TypesOf(tenant) {
		if t.Flow == nil || !t.Flow.Ordered || t.Paused() {
			continue
		}
		byNumber[t.Number()] = t
		numbers = append(numbers, t.Number())
		names = append(names, name)
		blocks = append(blocks, t.Flow.OnFailure == asyncflow.FlowBlock)
		parks = append(parks, config.Parks(t))
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	rows, _ := tx.Query(ctx, byNumber[numbers[0]].SQL(0, blockedKeysSQL), pgx.QueryExecModeExec,
		numbers, names, blocks, parks, before, asyncflow.MaxAlertKeys, maxWaitingHeads)
	var number int32
	var k blockedKey
	_, err = pgx.ForEachRow(rows, []any{&number, &k.Key, &k.id, &k.keys, &k.Status, &k.WaitsFor,
		&k.Since, &k.due}, func() error {
		k.t = byNumber[number]
		k.Since = k.Since.UTC()
		k.Task = asyncflow.TaskID{Type: k.t.Name, Number: k.id}.String()
		all = append(all, k)
		return nil
	})
	return all, err
}

// firstFailureSQL finds since when tasks have got no further: the first attempt that didn't do the
// stage, or the beginning of a wait, since a stage was done last.
const firstFailureSQL = `
SELECT u.id, min(j.at) FROM unnest($2::bigint[]) u (id) JOIN {journal} j USING (id)
WHERE j.type = $1
  AND j.outcome IN ('failed', 'rejected', 'lost', 'snoozed', 'fanned_out', 'awaits_signal')
  AND j.seq > (SELECT coalesce(max(d.seq), 0) FROM {journal} d WHERE d.type = $1 AND d.id = u.id
    AND d.outcome IN ('done', 'joined', 'signalled', 'timed_out', 'dependencies'))
GROUP BY u.id`

// addFirstFailures sets since when the waiting first tasks of keys have got no further, where their
// journals say so: a task that is retried comes to its place again with each attempt.
func (s *Counts) addFirstFailures(ctx context.Context, tx pgx.Tx, all []blockedKey) error {
	type table struct {
		t        *config.Type
		position int
	}
	places := map[table]map[int64]int{} // of ids in all
	for i, k := range all {
		if k.keys > 0 {
			continue
		}
		at := table{k.t, asyncflow.TaskID{Number: k.id}.Position()}
		if places[at] == nil {
			places[at] = map[int64]int{}
		}
		places[at][k.id] = i
	}
	if len(places) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	for at, ids := range places {
		var numbers []int64
		for id := range ids {
			numbers = append(numbers, id)
		}
		b.Queue(at.t.SQL(at.position, firstFailureSQL), at.t.Number(), numbers).
			Query(func(rows pgx.Rows) error {
				var id int64
				var since time.Time
				_, err := pgx.ForEachRow(rows, []any{&id, &since}, func() error {
					k := &all[ids[id]]
					if since = since.UTC(); since.Before(k.due) {
						since = k.due.UTC()
					}
					if since.Before(k.Since) {
						k.Since = since
					}
					return nil
				})
				return err
			})
	}
	return tx.SendBatch(ctx, b).Close()
}
