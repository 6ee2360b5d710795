package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// submitKey is the idempotency key of a task on its way into a batch.
type submitKey struct {
	key     string
	hash    [sha256.Size]byte // of the context
	expires time.Time
}

// keyOf returns the key of a task. It stands for no longer than the task is kept.
func keyOf(t asyncflow.NewTask, now time.Time, retention time.Duration) *submitKey {
	if t.Options.Key == "" {
		return nil
	}
	window := t.KeyWindow.Std()
	if window == 0 {
		window = min(asyncflow.DefaultKeyWindow, retention)
	}
	return &submitKey{key: t.Options.Key, hash: sha256.Sum256(t.Context), expires: now.Add(window)}
}

// splitKeyed divides items: those with keys form batches of their own, as they may
// have to wait for another submit of the same key.
func splitKeyed(items []*submitItem) (plain, keyed []*submitItem) {
	for _, item := range items {
		if item.key != nil {
			keyed = append(keyed, item)
		}
	}
	if keyed == nil {
		return items, nil
	}
	return slices.DeleteFunc(items, func(item *submitItem) bool { return item.key != nil }), keyed
}

// claimKeysSQL takes those keys that stand for no task, or for none any more. The
// rows come sorted by key, so that two batches wait for each other in one order.
const claimKeysSQL = `
INSERT INTO {keys} AS k (type, key, id, hash, expires_at)
SELECT $1, key, id, hash, expires_at FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::timestamptz[]) AS u (key, id, hash, expires_at)
ON CONFLICT (type, key) DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
WHERE k.expires_at <= $6`

// holdersSQL tells which tasks keys stand for.
const holdersSQL = `SELECT key, id, hash FROM {keys} WHERE type = $1 AND key = ANY ($2)`

// keyPatience is how long a batch waits for another transaction with one of its keys. One that
// submits by SQL may take its time; then each task of the batch goes by itself, and those
// whose keys are free don't wait for it: alonePatience is how long each waits.
const (
	keyPatience   = "2s"
	alonePatience = "10ms"
)

// writeKeyed writes one batch of keyed tasks and tells each item its result.
func (s *Store) writeKeyed(ctx context.Context, key TypeKey, items []*submitItem) {
	ctx, cancel, items := begin(ctx, items)
	defer cancel()
	slices.SortFunc(items, func(a, b *submitItem) int {
		return cmp.Or(cmp.Compare(a.position(), b.position()), cmp.Compare(a.key.key, b.key.key), cmp.Compare(a.id, b.id))
	})
	for part := range byRoll(items) {
		s.insertKeyed(ctx, key, part, keyPatience)
	}
	for _, item := range items {
		item.call.done(1)
	}
}

// insertKeyed inserts those tasks whose keys are free, and points the others to the
// task that their key stands for. When Postgres refuses the data of one, the batch
// is split until only the offender fails. The batch may be repeated: a key that
// this very item has taken before is still its own.
func (s *Store) insertKeyed(ctx context.Context, key TypeKey, items []*submitItem, patience string) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	var earliest time.Time
	if err == nil {
		err = s.persistUntil(ctx, "submit with keys", key, isDataOrLockError, func() (err error) {
			earliest, err = s.tryKeyed(ctx, t, items, patience)
			if rolledOn(err) {
				if t, items, err = s.rollOn(ctx, t, items); err == nil {
					earliest, err = s.tryKeyed(ctx, t, items, patience)
				}
			}
			return err
		})
	}
	switch {
	case err == nil:
		s.Wakeups.Announce(key, earliest)
	case isDataError(err) && len(items) > 1:
		half := len(items) / 2
		s.insertKeyed(ctx, key, items[:half], patience)
		s.insertKeyed(ctx, key, items[half:], patience)
	case sqlState(err) == "55P03" && len(items) > 1:
		for i := range items {
			s.insertKeyed(ctx, key, items[i:i+1], alonePatience)
		}
	default:
		for _, item := range items {
			item.result.Err = keyedError(err, key)
		}
	}
}

// isDataOrLockError tells errors that another try right away won't mend.
func isDataOrLockError(err error) bool {
	return isDataError(err) || sqlState(err) == "55P03" || isOurs(err)
}

func keyedError(err error, key TypeKey) error {
	switch {
	case sqlState(err) == "55P03":
		return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second,
			Message: "another submit with this key is under way; try again", Err: err}
	case isOurs(err):
		return err
	case isDataError(err):
		return asyncflow.InvalidField("context", "was refused by Postgres: %v", err)
	}
	return uncertain(err, key)
}

// tryKeyed is one transaction. It sets each item's result.
func (s *Store) tryKeyed(ctx context.Context, t *Type, items []*submitItem, patience string) (earliest time.Time, err error) {
	var h *handoff
	err = pgx.BeginFunc(ctx, s.hot(t.Key()), func(tx pgx.Tx) error {
		now := s.Clock.Now()
		holders, err := claimKeys(ctx, tx, t, items, now, patience)
		if err != nil {
			return err
		}
		var fresh []*submitItem
		for _, item := range items {
			if holder := holders[item.key.key]; holder.id == item.id {
				fresh = append(fresh, item)
			} else {
				holder.give(item, t)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		earliest, h, err = s.insertFresh(ctx, tx, t, fresh, now)
		return err
	})
	h.end(err)
	return earliest, err
}

// holder is the task that a key stands for.
type holder struct {
	id   int64
	hash []byte
}

// give tells an item that its key stands for another task.
func (h holder) give(item *submitItem, t *Type) {
	id := asyncflow.TaskID{Type: t.Name, Number: h.id}
	if string(h.hash) != string(item.key.hash[:]) {
		item.result.Err = &asyncflow.Error{Code: asyncflow.CodeKeyReused, Fields: []asyncflow.FieldError{
			{Field: "key", Message: "stands for task " + id.String() + ", which has another context"}}}
		return
	}
	item.result.ID, item.result.Existing = id, true
}

// claimKeys takes the keys that are free and returns which task each key stands for
// then. Of several items with the same key, the first one counts.
func claimKeys(ctx context.Context, tx pgx.Tx, t *Type, items []*submitItem, now time.Time, patience string) (map[string]holder, error) {
	first := slices.CompactFunc(slices.Clone(items), func(a, b *submitItem) bool { return a.key.key == b.key.key })
	names := make([]string, len(first))
	ids := make([]int64, len(first))
	hashes := make([][]byte, len(first))
	expires := make([]time.Time, len(first))
	for i, item := range first {
		names[i], ids[i], hashes[i], expires[i] = item.key.key, item.id, item.key.hash[:], item.key.expires
	}
	holders := make(map[string]holder, len(first))
	b := &pgx.Batch{}
	b.Queue(`SET LOCAL lock_timeout = '` + patience + `'`)
	b.Queue(t.tables.at(0, claimKeysSQL), t.Name, names, ids, hashes, expires, now)
	b.Queue(t.tables.at(0, holdersSQL), t.Name, names).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var name string
			var h holder
			if err := rows.Scan(&name, &h.id, &h.hash); err != nil {
				return err
			}
			holders[name] = h
		}
		return rows.Err()
	})
	return holders, tx.SendBatch(ctx, b).Close()
}

// readExisting fills in where those tasks stand that were there before.
func (s *Store) readExisting(ctx context.Context, tenant string, results []Submitted) {
	for i := range results {
		r := &results[i]
		if !r.Existing || r.Err != nil {
			continue
		}
		task, err := s.Task(ctx, tenant, r.ID)
		r.Stage, r.Status, r.OrderTime, r.Err = task.Stage, task.Status, task.OrderTime, err
	}
}

// ExpireKeys deletes a tenant's keys whose windows are over, and returns how many.
func (s *Store) ExpireKeys(ctx context.Context, tenant string) (n int, err error) {
	err = s.exclusively(ctx, tenant, "expire-keys", func(tx pgx.Tx, now time.Time) error {
		tag, err := tx.Exec(ctx, `
			WITH c AS MATERIALIZED (
			  SELECT ctid AS t FROM `+quote(schemaOf(tenant))+`.idempotency_keys
			  WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
			DELETE FROM `+quote(schemaOf(tenant))+`.idempotency_keys k USING c WHERE k.ctid = c.t`, now, GovernBatch)
		n = int(tag.RowsAffected())
		return err
	})
	return n, wrap(err, "ExpireKeys(%q)", tenant)
}
