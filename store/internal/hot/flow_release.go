package hot

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// AnnounceFreed announces tasks that ended outside of the hot path, so that waiting tasks may use
// their capacity and flow keys. If it fails, ReleaseStuck releases these later.
func AnnounceFreed(ctx context.Context, s *Path, t *config.Type, settled []asyncflow.Settlement) {
	now := s.core.Clock.Now()
	s.tellEnds(t, settled)
	if len(settled) == 0 || !t.Limited(now) {
		return
	}
	s.core.Wakeups.Announce(t.Key(), now) // a lease takes tasks blocked by stage
	if keys := t.FreedKeys(settled); len(keys) > 0 {
		_ = s.ReleaseKeys(ctx, t, keys)
	}
}

// ReleaseKey puts at most n of the first blocked tasks of a flow key in line, if the key's limits
// allow them. Call it when the key's rate allows n. more reports whether further tasks may be
// blocked.
func (s *Path) ReleaseKey(
	ctx context.Context, tenant, taskType, key string, n int,
) (more bool, err error) {
	t, err := s.core.Catalog.Type(tenant, taskType)
	if err != nil || t.Flow == nil {
		return false, nil // no task is blocked
	}
	done, err := s.releaseKeys(ctx, t, slices.Repeat([]string{key}, n))
	return err != nil || done == n, err
}

// ReleaseKeys puts blocked tasks of flow keys in line, for each key at most as many as its
// occurrences in keys. If it fails, ReleaseStuck releases the tasks later; the caller may try again
// sooner if a table is locked, see IsHeld.
func (s *Path) ReleaseKeys(ctx context.Context, t *config.Type, keys []string) error {
	if t.Flow == nil {
		return nil
	}
	_, err := s.releaseKeys(ctx, t, keys)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return nil
	}
	if err != nil && !IsHeld(err) {
		s.core.Log.Warn("can't look for the next tasks of flow keys; governance will",
			"tenant", t.Tenant, "type", t.Name, "error", err)
	}
	return err
}

func (s *Path) releaseKeys(ctx context.Context, t *config.Type, keys []string) (int, error) {
	named := map[string]int{}
	for _, key := range keys {
		named[key]++
	}
	ts := &records.Tokens{}
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		ts = &records.Tokens{}
		return s.tryReleaseKeys(ctx, t, named, ts)
	})
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	return ts.Readied(), postgres.Wrap(err, "ReleaseKeys(%q, %q)", t.Tenant, t.Name)
}

func (s *Path) tryReleaseKeys(
	ctx context.Context, t *config.Type, named map[string]int, ts *records.Tokens,
) error {
	err := pgx.BeginFunc(ctx, s.core.HotDB(t.Tenant), func(tx pgx.Tx) error {
		if err := lockForRelease(ctx, tx, t); err != nil {
			return err
		}
		keys := slices.Sorted(maps.Keys(named))
		states, err := ReadKeys(ctx, tx, t, keys)
		if err != nil {
			return err
		}
		if err := takeBlocked(ctx, tx, t, named, keys, states, ts, s.core.Clock.Now()); err != nil {
			return err
		}
		if ts.Empty() {
			return postgres.ErrIdle
		}
		b := &pgx.Batch{}
		ts.Queue(b, t)
		return tx.SendBatch(ctx, b).Close()
	})
	if errors.Is(err, postgres.ErrIdle) {
		return nil
	}
	return err
}

// lockForRelease keeps tasks of a type from being leased, and checks that this node knows the
// newest roll.
func lockForRelease(ctx context.Context, tx pgx.Tx, t *config.Type) error {
	b := &pgx.Batch{}
	b.Queue(`SET LOCAL lock_timeout = '` + LeasePatience + `'`)
	catalog.QueueLocks(b, t.Set().Tables, catalog.LeaseLock, t.Number())
	b.Queue(`SET LOCAL lock_timeout = '` + tablePatience + `'`)
	onNewest := config.QueueNewest(b, t)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return onNewest()
}

// takeBlocked takes the next blocked tasks of flow keys from wait and adds their token rows to ts:
// of each key as many as named says and the state of the key allows.
func takeBlocked(
	ctx context.Context, tx pgx.Tx, t *config.Type, named map[string]int, keys []string,
	states map[string]keyState, ts *records.Tokens, now time.Time,
) error {
	most := make([]int, len(keys))
	for i, key := range keys {
		most[i] = min(named[key], states[key].capacity(t))
	}
	var blocks []int64 // of a key with failed or snoozed tasks, only these may go on
	for _, state := range states {
		blocks = append(blocks, state.blocks...)
	}
	rows, err := tx.Query(ctx, t.SQL(0, releaseKeysSQL), keys, most, blocks, t.Number())
	if err != nil {
		return err
	}
	return ts.AddRows(rows, asyncflow.Return, now)
}

// LeasePatience is how long a release waits for a lease of its type.
const LeasePatience = "2s"

// capacity returns how many of the key's blocked tasks may be released.
func (s keyState) capacity(t *config.Type) int {
	most := t.Flow.InFlight()
	switch {
	case !s.blocked:
		return 0
	case most == 0:
		return catalog.JobBatch
	case len(s.blocks) > 0: // releaseKeysSQL picks them
		return max(0, most-s.InFlight)
	case t.Flow.Ordered && s.Started:
		return 0
	}
	return max(0, most-s.InFlight)
}

// releaseKeysSQL takes the first blocked tasks of some flow keys.
const releaseKeysSQL = `
WITH c AS MATERIALIZED (
  SELECT w.t FROM unnest($1::text[], $2::int[]) AS u (key, most), LATERAL (
    SELECT ctid AS t FROM {wait} k
    WHERE k.type = $4 AND k.key = u.key AND k.reason = 'flow_key'
      AND (k.id = ANY ($3)
        OR NOT EXISTS (SELECT FROM {blocks} b WHERE b.key = u.key AND abs(b.id) = ANY ($3)))
    ORDER BY k.order_time, k.id
    LIMIT u.most
    FOR UPDATE SKIP LOCKED) w)
DELETE FROM {wait} w USING c WHERE w.ctid = c.t
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, w.key, coalesce(w.since, w.order_time)`

// ReleaseStuck releases tasks of flow keys after a node was lost with their release, or when their
// rate allows another task. It returns how many tasks it released. It begins after the key after,
// and returns the last key it read; "": there are no more.
func (s *Path) ReleaseStuck(
	ctx context.Context, t *config.Type, after string,
) (n int, last string, err error) {
	rows, _ := s.core.HotDB(t.Tenant).Query(ctx, t.SQL(0, blockedKeysSQL), after,
		catalog.JobBatch, t.Number())
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(keys) == 0 {
		return 0, "", postgres.Wrap(err, "ReleaseStuck(%q, %q)", t.Tenant, t.Name)
	}
	n, err = s.releaseKeys(ctx, t, slices.Repeat(keys, stuckAtOnce(t.Flow)))
	if len(keys) == catalog.JobBatch {
		last = keys[len(keys)-1]
	}
	return n, last, err
}

// stuckAtOnce returns how many tasks of a stuck key are released at once. With a rate, it is one
// more than the rate allows: the dispatcher that refuses that one then releases the remaining ones.
func stuckAtOnce(f *asyncflow.Flow) int {
	if f.Rate.IsZero() {
		return 1
	}
	return min(catalog.JobBatch, 2+int(f.Rate.PerSecond()))
}

// blockedKeysSQL finds flow keys with blocked tasks. It reads one index entry for each key,
// however many tasks there are.
const blockedKeysSQL = `
WITH RECURSIVE s (key, n) AS (
  (SELECT key, 1 FROM {wait} WHERE type = $3 AND reason = 'flow_key' AND key > $1
    ORDER BY key LIMIT 1)
  UNION ALL
  SELECT (SELECT w.key FROM {wait} w WHERE w.type = $3 AND w.key > s.key AND w.reason = 'flow_key'
    ORDER BY w.key LIMIT 1), s.n + 1
  FROM s WHERE s.key IS NOT NULL AND s.n < $2)
SELECT key FROM s WHERE key IS NOT NULL`

// UnblockKey releases the tasks of a flow key that are blocked by failed ones. It returns the
// number of failed ones.
func (s *Path) UnblockKey(ctx context.Context, tenant, taskType, key string) (int, error) {
	t, err := s.core.Catalog.Fresh(ctx, tenant, taskType)
	if err != nil {
		return 0, err
	}
	n := 0
	err = audit.Do(ctx, s.core, t.Tenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, t.SQL(0, `DELETE FROM {blocks} WHERE type = $1 AND key = $2
			AND id > 0`), t.Name, key)
		n = int(tag.RowsAffected())
		audit.CallOf(ctx).Note("released", n)
		return err
	})
	if err != nil {
		return 0, postgres.Wrap(err, "UnblockKey(%q, %q)", tenant, taskType)
	}
	_ = s.ReleaseKeys(ctx, t, []string{key})
	return n, nil
}
