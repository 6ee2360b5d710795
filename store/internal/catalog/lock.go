package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A lock is a row of the tenant's table locks, which a transaction locks until its end. Roles
// without rights in the tenant's schema can't lock it, while any role of the database can take any
// advisory lock. The row of a type is made with it, other rows when they are first needed; a row
// that a transaction makes is as good as locked.
//
// A row lock gives the transaction an id, so that its COMMIT waits for the disk. A transaction that
// wrote nothing else is rolled back.

// Names of locks. A background job has a lock of its name. The number of a lock without numbers is
// 0.
const (
	LeaseLock      = "lease"      // of limited leases, by the number of the type
	ClaimerLock    = "claimer"    // by ClaimerNumber
	DependentsLock = "dependents" // of inserts that could make a cycle together
	CountsLock     = "counts"     // of the numbers of running counts and reruns
)

// TryLockSQL locks a row, or makes it. It reports whether the row was free, whether it was made,
// and the transaction that has it otherwise.
const TryLockSQL = `
WITH free AS MATERIALIZED (
  SELECT number FROM {locks} WHERE name = $1::text AND number = $2::int FOR UPDATE SKIP LOCKED),
made AS (
  INSERT INTO {locks} (name, number) SELECT $1::text, $2::int
  WHERE NOT EXISTS (SELECT FROM {locks} WHERE name = $1::text AND number = $2::int)
  ON CONFLICT DO NOTHING RETURNING number)
SELECT EXISTS (SELECT FROM free), EXISTS (SELECT FROM made),
  coalesce((SELECT xmax::text FROM {locks} WHERE name = $1::text AND number = $2::int), '')`

// TriedLock is the result of TryLockSQL.
type TriedLock struct {
	free, made bool
	holder     string // the id of the transaction that has it
}

// Scan reads the row of TryLockSQL.
func (l *TriedLock) Scan(row pgx.Row) error { return row.Scan(&l.free, &l.made, &l.holder) }

// Ours reports whether the transaction has the lock.
func (l *TriedLock) Ours() bool { return l.free || l.made }

// End returns the statement that ends a transaction that has written nothing but locks.
func (l *TriedLock) End() string {
	if l.made {
		return "COMMIT"
	}
	return "ROLLBACK"
}

// makeLocksSQL makes locks that don't exist, and lockSQL waits for them, both in the order of the
// numbers.
const (
	makeLocksSQL = `
INSERT INTO {locks} (name, number) SELECT $1::text, n FROM unnest($2::int[]) AS u (n)
ON CONFLICT DO NOTHING`
	lockSQL = `
SELECT FROM unnest($2::int[]) AS u (n), LATERAL (
  SELECT FROM {locks} l WHERE l.name = $1::text AND l.number = u.n FOR UPDATE) l`
)

// QueueLocks waits for locks, and sets made if it has made one. Numbers must be in order, so that
// two transactions don't wait for each other.
func QueueLocks(b *pgx.Batch, t *config.TableNames, name string, numbers ...int32) (made *bool) {
	made = new(bool)
	b.Queue(t.SQL(0, makeLocksSQL), name, numbers).Exec(func(tag pgconn.CommandTag) error {
		*made = tag.RowsAffected() > 0
		return nil
	})
	b.Queue(t.SQL(0, lockSQL), name, numbers)
	return made
}

// Exclusively runs do in a transaction of a tenant that has the lock of a job, so that no two
// nodes do the same at once. A node that was stopped keeps the lock for 5 s at most. While
// another node has the lock, exclusively doesn't call do. now is the time of the Clock: a worker of
// Citus would give its own, and leases end by the Clock's. do returns ErrIdle if it has written
// nothing.
func (s *Core) Exclusively(
	ctx context.Context, tenant, job string, do func(tx pgx.Tx, now time.Time) error,
) error {
	t := config.NewTables(tenant, config.SharedSet)
	err := pgx.BeginFunc(ctx, s.DB(tenant), func(tx pgx.Tx) error {
		var l TriedLock
		if err := l.Scan(tx.QueryRow(ctx, t.SQL(0, TryLockSQL), job, 0)); err != nil {
			return err
		}
		if err := s.NoteHolder(ctx, tx, LockKey{tenant, job, 0}, l); err != nil || !l.Ours() {
			return postgres.FirstError(err, postgres.ErrIdle)
		}
		err := do(tx, s.Clock.Now())
		if l.made && errors.Is(err, postgres.ErrIdle) {
			return nil // so that it stays
		}
		return err
	})
	if errors.Is(err, postgres.ErrIdle) {
		return nil
	}
	return err
}

// keptOutLimit is how long one other transaction may have a lock before it is an error. No
// transaction of a node takes so long.
const keptOutLimit = time.Minute

// LockKey names a lock.
type LockKey struct {
	Tenant, Name string
	Number       int32
}

// lockHolders are the transactions that keep this node out of locks, as far as it tried.
type lockHolders struct {
	limit time.Duration

	mu  sync.Mutex
	all map[LockKey]lockHolder
}

type lockHolder struct {
	id          string    // of the transaction
	since, seen time.Time // on this node: first and last
}

// note notes the result of a try, and returns since when the same transaction has kept this node
// out; the zero time, if that isn't for long.
func (h *lockHolders) note(key LockKey, l TriedLock, now time.Time) (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.Ours() {
		delete(h.all, key)
		return since
	}
	holder, known := h.all[key]
	if !known {
		h.forget(now.Add(-h.limit))
	}
	if holder.id != l.holder {
		holder = lockHolder{id: l.holder, since: now}
	}
	holder.seen = now
	h.all[key] = holder
	if now.Sub(holder.since) >= h.limit {
		return holder.since
	}
	return since
}

// forget drops what wasn't seen after a time, such as the lock of a type that is gone.
func (h *lockHolders) forget(before time.Time) {
	for key, holder := range h.all {
		if holder.seen.Before(before) {
			delete(h.all, key)
		}
	}
}

// rowsQuerier is a transaction.
type rowsQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// NoteHolder returns an error if another transaction has kept this node out of a lock for long.
func (s *Core) NoteHolder(ctx context.Context, tx rowsQuerier, key LockKey, l TriedLock) error {
	since := s.holders.note(key, l, time.Now())
	if since.IsZero() {
		return nil
	}
	holder := "another transaction"
	if !s.distributed { // the id is that of the server with the row
		rows, _ := tx.Query(ctx, `SELECT pid FROM pg_locks WHERE locktype = 'transactionid'
			AND granted AND transactionid::text = $1::text`, l.holder)
		if pid, err := pgx.CollectOneRow(rows, pgx.RowTo[int]); err == nil {
			holder = fmt.Sprintf("the server process %d", pid)
		}
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"%s has had the lock %s of tenant %s in one transaction since %s: "+
			"end it, for example by pg_terminate_backend", holder, key.Name, key.Tenant,
		since.UTC().Format(time.RFC3339))
}

// claimerNumbers is how many locks the claimers of a tenant share. The rows stay, so it bounds
// them; with fewer of them, claims would wait for other claims more often.
const claimerNumbers = 1 << 16

// ClaimerNumber returns the number of the lock of a claimer in a stage. A transaction needs it to
// give the claimer tasks.
func ClaimerNumber(t *config.Type, stage, claimer string) int32 {
	stage, _ = t.Mapped(stage, 1)
	h := fnv.New32a()
	h.Write([]byte(t.Name + "/" + stage + "/" + claimer))
	return int32(h.Sum32() % claimerNumbers)
}
