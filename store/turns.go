package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// keyTurn tells which of the tasks of a flow key may run. Nobody else leases tasks of the
// type while it is held: see guardLock.
type keyTurn struct {
	flow   *asyncflow.Flow
	room   int       // how many more; -1: no limit
	only   int64     // the one whose turn it is, if that is decided; else 0
	first  time.Time // order_time of the first of the others; zero: there are none
	passed bool      // one had to give way to them
}

// has tells whether it is a task's turn.
func (k *keyTurn) has(c *candidate) bool {
	switch {
	case k.room == 0, k.only != 0 && k.only != c.ID.Number:
		return false
	case k.only == 0 && !k.first.IsZero() && k.first.Before(c.OrderTime):
		k.passed = true
		return false
	}
	return true
}

func (k *keyTurn) take() {
	if k.room > 0 {
		k.room--
	}
}

// readTurns reads how the flow keys of candidates stand.
func readTurns(ctx context.Context, conn *tenantConn, t *Type, found []candidate) (map[string]*keyTurn, error) {
	byKey := map[string][]*candidate{}
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
	states, err := readKeys(ctx, conn, t, keys)
	turns := make(map[string]*keyTurn, len(keys))
	for key, state := range states {
		turns[key] = state.turn(t, byKey[key])
	}
	return turns, err
}

// keyState is how a flow key stands.
type keyState struct {
	leased  int
	started bool      // a task that has begun waits for its next attempt or stage
	first   time.Time // order_time of the first that is held, or, in an ordered flow, ready too; zero: none is
	blocks  []int64   // tasks that have failed and keep the others waiting
}

// querying is a connection or a transaction.
type querying interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func readKeys(ctx context.Context, conn querying, t *Type, keys []string) (map[string]keyState, error) {
	rows, err := conn.Query(ctx, t.tables.at(0, keyStatesSQL), keys, t.Stages[0].Name, t.Name, t.Flow.Ordered)
	if err != nil {
		return nil, err
	}
	states := make(map[string]keyState, len(keys))
	var key string
	var s keyState
	var first *time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &s.leased, &s.started, &first, &s.blocks}, func() error {
		s.first = orZero(first)
		states[key] = s
		s.blocks = nil
		return nil
	})
	return states, err
}

const keyStatesSQL = `
SELECT k, (SELECT count(*) FROM {lease} l WHERE l.key = k),
  EXISTS (SELECT FROM {readies} r WHERE r.key = k AND (r.attempt > 1 OR r.stage <> $2))
    OR EXISTS (SELECT FROM {wait} w WHERE w.key = k AND w.reason <> 'flow_key' AND (w.attempt > 1 OR w.stage <> $2)),
  least((SELECT w.order_time FROM {wait} w WHERE w.key = k AND w.reason = 'flow_key' ORDER BY w.order_time, w.id LIMIT 1),
    CASE WHEN $4 THEN (SELECT min(r.order_time) FROM {readies} r WHERE r.key = k) END),
  ARRAY(SELECT b.id FROM {blocks} b WHERE b.type = $3 AND b.key = k)
FROM unnest($1::text[]) k`

// turn decides on the candidates of a key, in order.
func (s keyState) turn(t *Type, candidates []*candidate) *keyTurn {
	k := &keyTurn{flow: t.Flow, room: -1, first: s.first}
	if most := t.Flow.InFlight(); most > 0 {
		k.room = max(0, most-s.leased)
	}
	if !t.Flow.Ordered || k.room == 0 {
		return k
	}
	begun := slices.IndexFunc(candidates, func(c *candidate) bool { return t.Started(c.Stage, c.Attempt) })
	switch {
	case len(s.blocks) > 0: // only they may go on
		k.room = 0
		for _, c := range candidates {
			if slices.Contains(s.blocks, c.ID.Number) {
				k.room, k.only = 1, c.ID.Number
			}
		}
	case t.Flow.OnFailure == asyncflow.FlowPark:
	case begun >= 0:
		k.only = candidates[begun].ID.Number
	case s.started:
		k.room = 0
	}
	return k
}
