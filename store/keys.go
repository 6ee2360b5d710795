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

// claimKeysSQL takes those keys that stand for no task, or for none any more: their windows are
// over, or their tasks were dropped with their roll, as the retention was lowered; $7 is the
// least number that is kept. The rows come sorted by key, so that two batches wait for each
// other in one order. It locks the rows of the other keys, which is a write: the commit waits
// for a synchronous standby, also to have those rows.
const claimKeysSQL = `
INSERT INTO {keys} AS k (type, key, id, hash, expires_at)
SELECT $1, key, id, hash, expires_at FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::timestamptz[]) AS u (key, id, hash, expires_at)
ON CONFLICT (type, key) DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
WHERE k.expires_at <= $6 OR k.id < $7`

// holdersSQL tells which tasks keys stand for.
const holdersSQL = `SELECT key, id, hash FROM {keys} WHERE type = $1 AND key = ANY ($2)`

// claimApartSQL takes them one by one, and returns which of them other transactions have.
const claimApartSQL = `SELECT * FROM {claim}($1, $2, $3, $4, $5, $6, $7, $8)`

const (
	// batchPatience is how long a batch waits for another transaction with one of its keys. One
	// that submits by SQL may take its time; then the keys are claimed apart, and those that are
	// held are put aside, so that the others don't wait for them.
	batchPatience = "10ms"
	// heldMost is how many held keys are looked for at once: each takes a millisecond.
	heldMost = 10
	// tablePatience is how long a batch waits for the lock of a table, such as one that is
	// being sealed.
	tablePatience = "2s"
)

// writeKeyed writes one batch of keyed tasks and tells each item its result, but for those that it
// puts aside.
func (s *Store) writeKeyed(ctx context.Context, key TypeKey, items []*submitItem) {
	items = s.aside.join(key, items)
	s.aside.put(key, s.writeKeys(ctx, key, items, false))
}

// writeKeys writes keyed tasks, and tells each item its result, but for those whose keys other
// transactions hold, which it returns.
func (s *Store) writeKeys(
	ctx context.Context, key TypeKey, items []*submitItem, apart bool,
) (held []*submitItem) {
	ctx, cancel, items := begin(ctx, items)
	defer cancel()
	slices.SortFunc(items, func(a, b *submitItem) int {
		return cmp.Or(cmp.Compare(a.position(), b.position()), cmp.Compare(a.key.key, b.key.key), cmp.Compare(a.id, b.id))
	})
	for part := range byRoll(items) {
		held = append(held, s.insertKeyed(ctx, key, part, apart)...)
	}
	waits := make(map[*Submitted]bool, len(held))
	for _, item := range held {
		waits[item.result] = true
	}
	for _, item := range items {
		if !waits[item.result] {
			item.call.done(1)
		}
	}
	return held
}

// insertKeyed inserts those tasks whose keys are free, and points the others to the
// task that their key stands for. It returns those whose keys are held. When Postgres refuses the
// data of one, the batch is split until only the offender fails. The batch may be repeated: a key
// that this very item has taken before is still its own.
func (s *Store) insertKeyed(
	ctx context.Context, key TypeKey, items []*submitItem, apart bool,
) (held []*submitItem) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	var earliest time.Time
	if err == nil {
		err = s.persistUntil(ctx, "submit with keys", key, isDataOrLockError, func() (err error) {
			earliest, held, err = s.tryKeyed(ctx, t, items, apart)
			if rolledOn(err) {
				if t, items, err = s.rollOn(ctx, t, items); err == nil {
					earliest, held, err = s.tryKeyed(ctx, t, items, apart)
				}
			}
			return err
		})
	}
	switch {
	case err == nil:
		s.Wakeups.Announce(key, earliest)
		return held
	case isDataError(err) && len(items) > 1:
		half := len(items) / 2
		held = s.insertKeyed(ctx, key, items[:half], apart)
		return append(held, s.insertKeyed(ctx, key, items[half:], apart)...)
	case sqlState(err) == "55P03" && !apart:
		return s.insertKeyed(ctx, key, items, true)
	}
	for _, item := range items {
		item.result.Err = keyedError(err, key)
	}
	return nil
}

// isDataOrLockError tells errors that another try right away won't mend.
func isDataOrLockError(err error) bool {
	return isDataError(err) || sqlState(err) == "55P03" || isOurs(err)
}

func keyedError(err error, key TypeKey) error {
	switch {
	case sqlState(err) == "55P03":
		return heldError(err)
	case isOurs(err):
		return err
	case isDataError(err):
		return asyncflow.InvalidField("context", "was refused by Postgres: %v", err)
	}
	return uncertain(err, key)
}

// heldError says that a key is held.
func heldError(err error) error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second,
		Message: "another submit with this key is under way; try again", Err: err}
}

// tryKeyed is one transaction. It sets each item's result, but for those whose keys are held:
// apart, it returns these; else it fails by 55P03.
func (s *Store) tryKeyed(
	ctx context.Context, t *Type, items []*submitItem, apart bool,
) (earliest time.Time, held []*submitItem, err error) {
	if len(items) == 0 { // an earlier try has inserted all
		return earliest, nil, confirm(ctx, s.of(t.Tenant))
	}
	var h *handoff
	err = pgx.BeginFunc(ctx, s.hot(t.Key()), func(tx pgx.Tx) error {
		now := s.Clock.Now()
		holders, others, err := claimKeys(ctx, tx, t, items, now, apart)
		if err != nil {
			return err
		}
		var fresh []*submitItem
		for _, item := range items {
			holder := holders[item.key.key]
			switch {
			case others[item.key.key]:
				held = append(held, item)
			case holder.id == item.id:
				fresh = append(fresh, item)
			default:
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
	return earliest, held, err
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
// then. Of several items with the same key, the first one counts. Apart, it returns the keys that
// other transactions have; else it fails by 55P03 when there are some.
func claimKeys(
	ctx context.Context, tx pgx.Tx, t *Type, items []*submitItem, now time.Time, apart bool,
) (holders map[string]holder, others map[string]bool, err error) {
	first := slices.CompactFunc(slices.Clone(items), func(a, b *submitItem) bool { return a.key.key == b.key.key })
	names := make([]string, len(first))
	ids := make([]int64, len(first))
	hashes := make([][]byte, len(first))
	expires := make([]time.Time, len(first))
	for i, item := range first {
		names[i], ids[i], hashes[i], expires[i] = item.key.key, item.id, item.key.hash[:], item.key.expires
	}
	holders, others = make(map[string]holder, len(first)), map[string]bool{}
	b := &pgx.Batch{}
	least := asyncflow.NewTaskID(t.Name, t.First, 0).Number
	if apart {
		q := b.Queue(t.tables.at(0, claimApartSQL), t.Name, names, ids, hashes, expires, now, least, heldMost)
		q.Query(func(rows pgx.Rows) error {
			held, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, name := range held {
				others[name] = true
			}
			return err
		})
	} else {
		b.Queue(`SET LOCAL lock_timeout = '` + batchPatience + `'`)
		b.Queue(t.tables.at(0, claimKeysSQL), t.Name, names, ids, hashes, expires, now, least)
	}
	b.Queue(`SET LOCAL lock_timeout = '` + tablePatience + `'`)
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
	return holders, others, tx.SendBatch(ctx, b).Close()
}

// readExisting fills in where those tasks stand that were there before. One whose task was
// dropped with its roll, which this node has just learned, is submitted after all.
func (s *Store) readExisting(ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []Submitted) {
	for i := range results {
		r := &results[i]
		if !r.Existing || r.Err != nil {
			continue
		}
		task, err := s.Task(ctx, tenant, r.ID)
		if t, missing := s.Catalog.Type(tenant, r.ID.Type); asyncflow.CodeOf(err) == asyncflow.CodeNotFound && missing == nil && r.ID.Position() < t.First {
			*r = s.submit(ctx, tenant, tasks[i:i+1], make([]Submitted, 1), func() {})[0]
			continue
		}
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
