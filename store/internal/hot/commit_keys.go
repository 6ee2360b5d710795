package hot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Key is the idempotency key of a new task.
type Key struct {
	Name    string
	Hash    [sha256.Size]byte // of the context
	Expires time.Time         // config.KeyUntilFinal: with the end of its task
	Takes   int64             // the task from which it takes the key, if it is still there; 0: none
	Replace *Replace          // it replaces the context of the existing task; nil: it doesn't

	// Holder is the existing task with this key; zero: the new task holds it.
	Holder asyncflow.TaskID
	// Reused reports whether that task was submitted with another context, byte by byte.
	Reused bool
	// Replaced is the existing task with the new context; nil: that was not replaced.
	Replaced *Replaced
	// Refused is why the task was neither inserted nor replaced the existing one; nil: it was not
	// refused.
	Refused error
	// Unseen reports whether the last try with KeysApart left the task out without a look at the
	// key, as it had met too many locked ones.
	Unseen bool
}

// onlyReplaces returns why the task may only replace another one; nil: it may take the key.
func (k *Key) onlyReplaces() error {
	if k.Replace == nil {
		return nil
	}
	return k.Replace.OnlyReplaces
}

// newKey returns the idempotency key of a new task; nil: none. The key ends no later than the
// task's retention.
func newKey(t *asyncflow.NewTask, now time.Time, retention time.Duration) *Key {
	if t.Options.Key == "" {
		return nil
	}
	k := &Key{Name: t.Options.Key, Hash: sha256.Sum256(t.Context), Takes: t.Takes.Number,
		Expires: config.KeyUntilFinal}
	if t.OnConflict == asyncflow.ConflictReplace {
		k.Replace = &Replace{RunAt: t.RunAt, Delay: t.Delay.Std(), MaxWait: t.MaxWait.Std(),
			Priority: t.Options.Priority, StartBy: t.StartBy, EndBy: t.EndBy,
			Claim: t.Options.Claim, By: t.By, Operates: t.Operates, OnlyReplaces: t.OnlyReplaces}
	}
	if t.KeyWindow.UntilFinal() {
		return k
	}
	window := t.KeyWindow.Std()
	if window == 0 {
		window = min(asyncflow.DefaultKeyWindow, retention)
	}
	k.Expires = now.Add(window)
	return k
}

// claimKeysSQL takes keys that belong to no existing task: they are new, their windows are over, or
// their tasks were dropped with their roll because the retention was lowered; $7 is the least
// number that is kept. The rows are sorted by key, so that two batches wait for each other in one
// order. The statement locks the rows of the other keys, which is a write: so the commit waits
// until the rows are on a synchronous standby, too. With a table of the tenant in it, Citus runs it
// as it is: otherwise it would lose the parameters of the last condition.
const claimKeysSQL = `
INSERT INTO {keys} AS k (type, key, id, hash, expires_at)
SELECT $1, u.key, u.id, u.hash, u.expires_at
FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::timestamptz[])
  AS u (key, id, hash, expires_at) JOIN {types} y ON y.name = $1
ON CONFLICT (type, key) DO UPDATE
SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
WHERE k.expires_at <= $6 OR k.id < $7`

// holdersSQL reads the tasks to which keys belong.
const holdersSQL = `SELECT key, id, hash, expires_at FROM {keys}
WHERE type = $1 AND key = ANY ($2)`

// claimApartSQL takes keys one by one, in any order. It returns the keys that other transactions
// lock and, after the first $8 of them, the remaining keys without a look at them.
const claimApartSQL = `SELECT * FROM {claim}($1, $2, $3, $4, $5, $6, $7, $8)`

const (
	// batchPatience is how long a batch waits for another transaction with one of its keys. A
	// transaction that submits by SQL may take long. Then the keys are claimed apart, and tasks
	// with locked keys are put aside, so that other tasks don't wait for them.
	batchPatience = "10ms"
	// secondPatience is how long these tasks wait for the transaction of another batch.
	secondPatience = "50ms"
	// heldMost is the most locked keys that one call finds: each takes a millisecond.
	heldMost = 10
	// tablePatience is how long a batch waits for the lock of a table, for example while a roll is
	// sealed: no longer than all else on these connections, which tenants share.
	tablePatience = "5ms"
)

// IsHeld reports whether an error means that another transaction holds a lock for too long: of a
// table, or of an idempotency key.
func IsHeld(err error) bool { return postgres.State(err) == pgerrcode.LockNotAvailable }

// KeyWait says what a transaction does about keys that other transactions lock.
type KeyWait int

const (
	KeysTogether KeyWait = iota // wait for a moment in the order of the keys, then fail
	KeysAgain                   // the same, for longer
	KeysApart                   // take the other keys
)

// InsertWithKeys inserts the tasks of one roll, sorted by key, with free keys. For the remaining
// tasks it sets the existing task with their key, or replaces its context. It is one transaction,
// which may be repeated: a task keeps the key that it took in an earlier try. If other transactions
// lock keys, InsertWithKeys returns their tasks if wait is KeysApart; otherwise it fails, see
// IsHeld.
func InsertWithKeys(
	ctx context.Context, s *Path, t *config.Type, items []*Insertion, wait KeyWait,
	replace ReplaceFunc,
) (held []*Insertion, err error) {
	if len(items) == 0 { // an earlier try inserted all of them
		err := s.core.ConfirmHot(ctx, t.Tenant)
		return nil, postgres.Wrap(err, "InsertWithKeys(%q, %q)", t.Tenant, t.Name)
	}
	err = RunInsert(ctx, s, t, func(tx pgx.Tx, w *Writes) error {
		now := s.core.Clock.Now()
		holders, others, err := ClaimKeys(ctx, tx, t, items, now, wait)
		if err != nil {
			return err
		}
		if err := replaceHolders(ctx, tx, t, items, holders, others, replace); err != nil {
			return err
		}
		held = nil
		var fresh []*Insertion
		for _, item := range items {
			holder := holders[item.Key.Name]
			locked, put := others[item.Key.Name]
			item.Key.Holder = asyncflow.TaskID{}
			item.Key.Reused = false
			item.Key.Unseen = put && !locked
			switch {
			case put:
				held = append(held, item)
			case item.Key.Refused != nil:
			case holder.ID == item.ID.Number:
				fresh = append(fresh, item)
			default:
				item.Key.Holder = asyncflow.TaskID{Type: t.Name, Number: holder.ID}
				item.Key.Reused = string(holder.Hash) != string(item.Key.Hash[:])
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		slices.SortFunc(fresh, func(a, b *Insertion) int {
			return cmp.Compare(a.ID.Number, b.ID.Number)
		})
		return s.insertFresh(ctx, tx, w, fresh)
	})
	return held, postgres.Wrap(err, "InsertWithKeys(%q, %q)", t.Tenant, t.Name)
}

// Holder is the task to which a key belongs.
type Holder struct {
	ID      int64
	Hash    []byte
	Expires time.Time // config.KeyUntilFinal: with its end
}

// ClaimKeys takes the free keys, and returns the task to which each key belongs afterwards. Of
// several items with the same key, the first one takes it. If other transactions lock keys,
// ClaimKeys fails unless wait is KeysApart. Then others holds the keys that it didn't take: true if
// they are locked, false if it didn't look at them.
func ClaimKeys(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, now time.Time, wait KeyWait,
) (holders map[string]Holder, others map[string]bool, err error) {
	return claimKeys(ctx, tx, t, items, now, wait, heldMost)
}

// ClaimKeysApart is ClaimKeys with KeysApart, and finds more locked keys, up to most.
func ClaimKeysApart(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, now time.Time, most int,
) (holders map[string]Holder, others map[string]bool, err error) {
	return claimKeys(ctx, tx, t, items, now, KeysApart, most)
}

func claimKeys(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, now time.Time,
	wait KeyWait, most int,
) (holders map[string]Holder, others map[string]bool, err error) {
	first := slices.CompactFunc(slices.Clone(items),
		func(a, b *Insertion) bool { return a.Key.Name == b.Key.Name })
	holders = make(map[string]Holder, len(first))
	others = map[string]bool{}
	b := &pgx.Batch{}
	names := queueClaims(b, t, first, now, wait, most, others)
	b.Queue(`SET LOCAL lock_timeout = '` + tablePatience + `'`)
	b.Queue(t.SQL(0, holdersSQL), t.Name, names).Query(func(rows pgx.Rows) error {
		var name string
		var h Holder
		_, err := pgx.ForEachRow(rows, []any{&name, &h.ID, &h.Hash, &h.Expires}, func() error {
			holders[name] = h
			return nil
		})
		return err
	})
	err = tx.SendBatch(ctx, b).Close()
	if postgres.State(err) == pgerrcode.ForeignKeyViolation ||
		err == nil && len(holders)+len(others) < len(names) { // there is no such type
		err = config.UnknownType(t.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	return holders, others, takeKeys(ctx, tx, t, items, holders, others)
}

// queueClaims queues the statement that takes the free keys of the items, and returns all keys. The
// statement adds keys to others if wait is KeysApart, see ClaimKeys.
func queueClaims(
	b *pgx.Batch, t *config.Type, items []*Insertion, now time.Time, wait KeyWait,
	most int, others map[string]bool,
) (names []string) {
	names = make([]string, len(items))
	ids := make([]int64, len(items))
	hashes := make([][]byte, len(items))
	expires := make([]time.Time, len(items))
	for i, item := range items {
		names[i] = item.Key.Name
		ids[i] = item.ID.Number
		hashes[i] = item.Key.Hash[:]
		expires[i] = item.Key.Expires
	}
	least := asyncflow.NewTaskID(t.Name, t.First, 0).Number
	if wait == KeysApart {
		q := b.Queue(t.SQL(0, claimApartSQL), t.Name, names, ids, hashes, expires, now, least,
			most)
		q.Query(func(rows pgx.Rows) error {
			held, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for i, name := range held {
				others[name] = i < most
			}
			return err
		})
		return names
	}
	patience := batchPatience
	if wait == KeysAgain {
		patience = secondPatience
	}
	b.Queue(`SET LOCAL lock_timeout = '` + patience + `'`)
	b.Queue(t.SQL(0, claimKeysSQL), t.Name, names, ids, hashes, expires, now, least)
	return names
}

// ExpireKeys deletes a tenant's keys after their windows, and returns their number. Keys of types
// that tasks depend on, or that wait for signals, go to `past_keys`, by which dependents and
// signals find the tasks as long as they are kept.
func (s *Path) ExpireKeys(ctx context.Context, tenant string) (n int, err error) {
	t := config.NewTables(tenant, config.SharedSet)
	err = s.core.Exclusively(ctx, tenant, "expire-keys", func(tx pgx.Tx, now time.Time) error {
		var types []int32
		var keys []string
		var ids []int64
		err := tx.QueryRow(ctx, t.SQL(0, deleteKeysSQL), now, catalog.JobBatch).
			Scan(&n, &types, &keys, &ids)
		if err == nil && n == 0 {
			return postgres.ErrIdle
		}
		if err != nil || len(keys) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, t.SQL(0, keepKeysSQL), types, keys, ids)
		return err
	})
	return n, postgres.Wrap(err, "ExpireKeys(%q)", tenant)
}

const (
	// deleteKeysSQL deletes keys, and returns their number and those to be kept in past_keys.
	deleteKeysSQL = `
WITH c AS MATERIALIZED (
  SELECT ctid AS t FROM {keys}
  WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM {keys} k USING c WHERE k.ctid = c.t RETURNING k.type, k.key, k.id),
past AS (
  SELECT y.number, g.key, g.id FROM gone g
  JOIN {types} y ON y.name = g.type AND (y.awaited_since IS NOT NULL
    OR EXISTS (SELECT FROM json_array_elements(y.spec->'stages') s WHERE s->>'mode' = 'wait'))
  JOIN {sets} s ON s.name = y.table_set LEFT JOIN {sets} b ON b.name = y.earlier_set
  WHERE g.id >= coalesce(b.first_pos, s.first_pos)::bigint << 40)
SELECT (SELECT count(*) FROM gone), array_agg(number), array_agg(key), array_agg(id) FROM past`

	keepKeysSQL = `
INSERT INTO {past_keys} (type, key, id) SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[])
ON CONFLICT (type, key) DO UPDATE SET id = excluded.id`
)
