package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// freed takes in that tasks have been settled: what they held others may have now.
func (s *Store) freed(t *Type, settled []asyncflow.Settlement) {
	now := s.Clock.Now()
	if len(settled) == 0 || !t.Guarded(now) {
		return
	}
	s.Wakeups.Announce(t.Key(), now) // whoever leases looks at those that are held by stage
	if t.Flow == nil || t.Flow.InFlight() == 0 {
		return
	}
	var keys []string
	for _, settlement := range settled {
		if key := t.FlowKeyOf(settlement.Lease.Options); key != "" {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		s.unholds.add(t.Key(), keys...)
	}
}

// queueBlocks writes down which tasks keep the others of their flow key waiting, since
// they have failed, and which don't any more.
func queueBlocks(b *pgx.Batch, t *Type, settled []asyncflow.Settlement) {
	if t.Flow == nil || !t.Flow.Ordered {
		return
	}
	for _, settlement := range settled {
		key := t.FlowKeyOf(settlement.Lease.Options)
		switch final := settlement.Verdict.Final(); {
		case key == "" || final == "":
		case final == asyncflow.StatusFailed && t.Flow.OnFailure == asyncflow.FlowBlock:
			b.Queue(t.tables.at(0, `INSERT INTO {blocks} (type, key, id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`), t.Name, key, settlement.Lease.ID.Number)
		default:
			b.Queue(t.tables.at(0, `DELETE FROM {blocks} WHERE type = $1 AND key = $2 AND id = $3`), t.Name, key, settlement.Lease.ID.Number)
		}
	}
}

// Unhold has the first tasks of a flow key that are held be leased again, if there is
// room for them: n at most. It is worth while when the rate of the key allows so many.
// more tells whether others may be held.
func (s *Store) Unhold(ctx context.Context, tenant, taskType, key string, n int) (more bool, err error) {
	t, err := s.Catalog.Type(tenant, taskType)
	if err != nil || t.Flow == nil {
		return false, nil // nothing is held any more
	}
	done, err := s.unhold(ctx, t, slices.Repeat([]string{key}, n))
	return err != nil || done == n, err
}

// writeUnholds looks at flow keys, each as often as it is named: their tasks were
// settled. What fails is made good by UnholdStuck.
func (s *Store) writeUnholds(ctx context.Context, key TypeKey, keys []string) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err == nil && t.Flow != nil {
		_, err = s.unhold(ctx, t, keys)
	}
	if err != nil && asyncflow.CodeOf(err) != asyncflow.CodeNotFound {
		s.log.Warn("can't look for the next tasks of flow keys; governance will", "tenant", key.Tenant, "type", key.Type, "error", err)
	}
}

func (s *Store) unhold(ctx context.Context, t *Type, keys []string) (int, error) {
	named := map[string]int{}
	for _, key := range keys {
		named[key]++
	}
	ts := &tokens{}
	err := s.following(ctx, t, func(t *Type) error {
		ts = &tokens{}
		return s.tryUnhold(ctx, t, named, ts)
	})
	s.Wakeups.Announce(t.Key(), ts.earliest)
	return ts.readied(), wrap(err, "Unhold(%q, %q)", t.Tenant, t.Name)
}

func (s *Store) tryUnhold(ctx context.Context, t *Type, named map[string]int, ts *tokens) error {
	return pgx.BeginFunc(ctx, s.hot(t.Key()), func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT pg_advisory_xact_lock($1)`, guardLock(t))
		onNewest := queueNewest(b, t)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if err := onNewest(); err != nil {
			return err
		}
		keys := make([]string, 0, len(named))
		for key := range named {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		states, err := readKeys(ctx, tx, t, keys)
		if err != nil {
			return err
		}
		rooms := make([]int, len(keys))
		for i, key := range keys {
			rooms[i] = min(named[key], states[key].room(t))
		}
		var blocks []int64 // of the keys that have some, only they may go on
		for _, state := range states {
			blocks = append(blocks, state.blocks...)
		}
		rows, err := tx.Query(ctx, t.tables.at(0, unholdSQL), keys, rooms, blocks)
		if err != nil {
			return err
		}
		now := s.Clock.Now()
		var id int64
		var seq int
		var key string
		var placed time.Time
		v := asyncflow.Verdict{Kind: asyncflow.Return}
		_, err = pgx.ForEachRow(rows, []any{&id, &seq, &v.Stage, &v.Attempt, &v.OrderTime, &key, &placed}, func() error {
			ts.add(id, seq, key, v, placed, now)
			return nil
		})
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		ts.queue(b, t)
		return tx.SendBatch(ctx, b).Close()
	})
}

// room returns how many of the tasks that are held a key has room for.
func (s keyState) room(t *Type) int {
	most := t.Flow.InFlight()
	switch {
	case !s.held:
		return 0
	case most == 0:
		return GovernBatch
	case len(s.blocks) > 0: // they are told by unholdSQL
		return max(0, most-s.leased)
	case t.Flow.Ordered && s.started && t.Flow.OnFailure != asyncflow.FlowPark:
		return 0
	}
	return max(0, most-s.leased)
}

// unholdSQL takes the first tasks of some flow keys that are held.
const unholdSQL = `
WITH c AS MATERIALIZED (
  SELECT w.t FROM unnest($1::text[], $2::int[]) AS u (key, room), LATERAL (
    SELECT ctid AS t FROM {wait} k
    WHERE k.key = u.key AND k.reason = 'flow_key'
      AND (NOT EXISTS (SELECT FROM {blocks} b WHERE b.key = u.key AND b.id = ANY ($3)) OR k.id = ANY ($3))
    ORDER BY k.order_time, k.id
    LIMIT u.room
    FOR UPDATE SKIP LOCKED) w)
DELETE FROM {wait} w USING c WHERE w.ctid = c.t
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, w.key, coalesce(w.since, w.order_time)`

// UnholdStuck does for flow keys of which tasks are held what nobody else did: their
// news was lost with a node, or the rate of the key allows another by now. It returns how
// many tasks go on. after is the key to begin after; the last key looked at comes back,
// "" when there are no more.
func (s *Store) UnholdStuck(ctx context.Context, t *Type, after string) (n int, last string, err error) {
	rows, err := s.hot(t.Key()).Query(ctx, t.tables.at(0, heldKeysSQL), after, GovernBatch)
	if err != nil {
		return 0, "", wrap(err, "UnholdStuck(%q, %q)", t.Tenant, t.Name)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(keys) == 0 {
		return 0, "", wrap(err, "UnholdStuck(%q, %q)", t.Tenant, t.Name)
	}
	n, err = s.unhold(ctx, t, slices.Repeat(keys, stuckAtOnce(t.Flow)))
	if len(keys) == GovernBatch {
		last = keys[len(keys)-1]
	}
	return n, last, err
}

// stuckAtOnce is how many tasks of a key go on at once that was forgotten: with a rate so
// many that it refuses one, as whoever refuses it sees to the others.
func stuckAtOnce(f *asyncflow.Flow) int {
	if f.Rate.IsZero() {
		return 1
	}
	return min(GovernBatch, 2+int(f.Rate.PerSecond()))
}

// heldKeysSQL finds flow keys with tasks that are held, one index entry each, however
// many tasks there are.
const heldKeysSQL = `
WITH RECURSIVE s (key, n) AS (
  (SELECT key, 1 FROM {wait} WHERE reason = 'flow_key' AND key > $1 ORDER BY key LIMIT 1)
  UNION ALL
  SELECT (SELECT w.key FROM {wait} w WHERE w.key > s.key AND w.reason = 'flow_key' ORDER BY w.key LIMIT 1), s.n + 1
  FROM s WHERE s.key IS NOT NULL AND s.n < $2)
SELECT key FROM s WHERE key IS NOT NULL`

// Release lets the tasks of a flow key go on that wait since one of them has failed. It
// returns how many had.
func (s *Store) Release(ctx context.Context, tenant, taskType, key string) (int, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, taskType)
	if err != nil {
		return 0, err
	}
	n := 0
	err = s.acting(ctx, t.Tenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, t.tables.at(0, `DELETE FROM {blocks} WHERE type = $1 AND key = $2`), t.Name, key)
		n = int(tag.RowsAffected())
		ActOf(ctx).Note("released", n)
		return err
	})
	if err != nil {
		return 0, wrap(err, "Release(%q, %q)", tenant, taskType)
	}
	s.unholds.add(t.Key(), key)
	return n, nil
}
