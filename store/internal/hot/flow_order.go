package hot

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// keyOrder decides which tasks of a flow key may run. The caller holds the type's lock, so that no
// other lease of the type is under way: see catalog.LeaseLock.
type keyOrder struct {
	left   int   // how many more may run; -1: any number
	only   int64 // the only task that may; 0: not decided
	first  place // of the first task among the remaining ones
	passed bool  // a task was blocked by them
}

// place is a task's place in the order; the zero value is no place.
type place struct {
	at time.Time // order_time
	id int64
}

// compare compares two places as cmp.Compare does.
func (p place) compare(other place) int {
	return cmp.Or(p.at.Compare(other.at), cmp.Compare(p.id, other.id))
}

// before reports whether p is a place before that of a task.
func (p place) before(l asyncflow.Lease) bool {
	return p.id != 0 && p.compare(place{l.OrderTime, l.ID.Number}) < 0
}

// has reports whether a task may run.
func (k *keyOrder) has(c *Candidate) bool {
	switch {
	case k.left == 0, k.only != 0 && k.only != c.ID.Number:
		return false
	case k.only == 0 && k.first.before(c.Lease):
		k.passed = true
		return false
	}
	return true
}

func (k *keyOrder) useOne() {
	if k.left > 0 {
		k.left--
	}
}

// readOrders reads the states of the candidates' flow keys.
func readOrders(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type, found []Candidate,
) (map[string]*keyOrder, error) {
	if !t.Flow.Blocks() {
		return nil, nil
	}
	byKey := map[string][]*Candidate{}
	for i := range found {
		if key := found[i].key; key != "" {
			byKey[key] = append(byKey[key], &found[i])
		}
	}
	if len(byKey) == 0 {
		return nil, nil
	}
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	states, err := ReadKeys(ctx, conn, t, keys)
	orders := make(map[string]*keyOrder, len(keys))
	for key, state := range states {
		orders[key] = state.order(t, byKey[key])
	}
	return orders, err
}

// keyState is the state of a flow key.
type keyState struct {
	InFlight int     // tasks that are leased, or wait for their children
	blocked  bool    // some of its tasks are blocked
	Started  bool    // ordered: a begun task waits for its next attempt or stage
	first    place   // of the first blocked task; ordered: or ready task
	blocks   []int64 // ordered: failed, or live snoozed tasks that block later ones
	snoozed  []int64 // ordered: tasks that were snoozed in their first attempt, and may be over
}

// ReadKeys reads the states of flow keys, in an open transaction.
func ReadKeys(ctx context.Context, conn interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, t *config.Type, keys []string) (map[string]keyState, error) {
	sql := KeyStatesSQL
	args := []any{keys, t.Number()}
	if t.Flow.Ordered {
		sql = OrderedKeyStatesSQL
		args = append(args, t.NamesOf(t.Stages[0].Name), t.Name,
			t.Flow.OnFailure == asyncflow.FlowBlock, config.Parks(t))
	}
	rows, err := conn.Query(ctx, t.SQL(0, sql), args...)
	if err != nil {
		return nil, err
	}
	states := make(map[string]keyState, len(keys))
	var key string
	var s keyState
	var blocked, ready *int64
	var blockedAt, readyAt *time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &s.InFlight, &s.Started, &blockedAt, &blocked,
		&readyAt, &ready, &s.blocks, &s.snoozed}, func() error {
		s.blocked = blocked != nil
		s.Started = s.Started || slices.ContainsFunc(s.snoozed, func(id int64) bool {
			return slices.Contains(s.blocks, id)
		})
		s.first = place{}
		for _, p := range []struct {
			at *time.Time
			id *int64
		}{{blockedAt, blocked}, {readyAt, ready}} {
			if p.id != nil && (s.first.id == 0 ||
				!s.first.before(asyncflow.Lease{OrderTime: *p.at,
					ID: asyncflow.TaskID{Number: *p.id}})) {
				s.first = place{*p.at, *p.id}
			}
		}
		states[key] = s
		s.blocks, s.snoozed = nil, nil
		return nil
	})
	return states, err
}

// KeyStatesSQL reads one index entry of each table for a key, and counts its tasks in flight. The
// children of a task are without a flow key: it stands for them.
const KeyStatesSQL = `
SELECT k, ` + keyInFlightSQL + `, false, w.order_time, w.id,
  NULL::timestamptz, NULL::bigint, NULL::bigint[], NULL::bigint[]
FROM unnest($1::text[]) k` + firstBlockedSQL

const keyInFlightSQL = `(SELECT count(*) FROM {lease} l WHERE l.type = $2 AND l.key = k)
  + (SELECT count(*) FROM (SELECT FROM {wait} c WHERE c.type = $2 AND c.key IS NOT NULL
    AND c.reason <> 'flow_key' AND (c.key, c.reason) >= (k, 'children')
    AND (c.key, c.reason) <= (k, 'children') ORDER BY c.key, c.reason) c)`

const firstBlockedSQL = `
LEFT JOIN LATERAL (
  SELECT w.order_time, w.id FROM {wait} w
  WHERE w.type = $2 AND w.key = k AND w.reason = 'flow_key'
  ORDER BY w.order_time, w.id LIMIT 1) w ON true`

// OrderedKeyStatesSQL also reads the first task in ready, and whether a task is begun: see begun. A
// task that was postponed before its first attempt is not begun, regardless of its stage. OFFSET 0
// keeps the planner from reading all tasks of the type into a hash. Only the index with the keys
// has the order of its tasks: see dueOfKeySQL.
const OrderedKeyStatesSQL = `
SELECT k, ` + keyInFlightSQL + `,
  EXISTS (SELECT FROM {readies} r WHERE r.type = $2 AND r.key BETWEEN k AND k AND CASE WHEN $6
      THEN r.attempt = 1 AND r.stage <> ALL ($3) ELSE r.attempt > 1 OR r.stage <> ALL ($3) END
      ORDER BY r.key, r.order_time, r.id OFFSET 0)
    OR EXISTS (SELECT FROM {wait} w WHERE w.type = $2 AND w.key BETWEEN k AND k
      AND w.reason <> 'flow_key'
      AND CASE WHEN $6 THEN w.attempt = 1 AND w.stage <> ALL ($3) AND w.reason <> 'delay'
      ELSE w.attempt > 1 OR w.stage <> ALL ($3) AND w.reason <> 'delay' END
      ORDER BY w.key OFFSET 0),
  w.order_time, w.id, r.order_time, r.id,
  ARRAY(SELECT abs(b.id) FROM {blocks} b WHERE b.type = $4 AND b.key = k
    AND CASE WHEN b.id > 0 THEN $5 ELSE NOT $6
      AND (EXISTS (SELECT FROM {wait} w WHERE w.type = $2 AND w.id = -b.id OFFSET 0)
        OR EXISTS (SELECT FROM {readies} r WHERE r.type = $2 AND r.key BETWEEN k AND k
          AND r.id = -b.id ORDER BY r.key, r.order_time, r.id OFFSET 0)) END),
  ARRAY(SELECT -b.id FROM {blocks} b WHERE b.type = $4 AND b.key = k AND b.id < 0 AND NOT $6)
FROM unnest($1::text[]) k` + firstBlockedSQL + `
LEFT JOIN LATERAL (
  SELECT r.order_time, r.id FROM {readies} r WHERE r.type = $2 AND r.key BETWEEN k AND k
  ORDER BY r.key, r.order_time, r.id LIMIT 1) r ON true`

// blocking reports whether a candidate blocks later tasks of the key.
func (s keyState) blocking(c *Candidate) bool {
	return slices.Contains(s.blocks, c.ID.Number) || slices.Contains(s.snoozed, c.ID.Number)
}

// order returns the decision on the candidates of a key, in order.
func (s keyState) order(t *config.Type, candidates []*Candidate) *keyOrder {
	k := &keyOrder{left: -1, first: s.first}
	if most := t.Flow.InFlight(); most > 0 {
		k.left = max(0, most-s.InFlight)
	}
	if !t.Flow.Ordered || k.left == 0 {
		return k
	}
	begun := slices.IndexFunc(candidates, func(c *Candidate) bool { // it keeps later ones waiting
		return t.Started(c.Stage, c.Attempt) && (c.Attempt == 1 || !config.Parks(t))
	})
	switch {
	case len(s.blocks) > 0 || slices.ContainsFunc(candidates, s.blocking): // only they may go on
		k.left = 0
		if i := slices.IndexFunc(candidates, s.blocking); i >= 0 {
			k.left = 1
			k.only = candidates[i].ID.Number
		}
	case s.Started:
		k.left = 0
	case begun >= 0:
		k.only = candidates[begun].ID.Number
	}
	return k
}
