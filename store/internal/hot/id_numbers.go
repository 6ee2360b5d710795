package hot

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A node takes task numbers from the roll's row in blocks, before the insert, so that after an
// unknown commit the insert can be repeated with the same ids. A block lasts for about ten seconds
// of submits. So the numbers of several nodes follow the order of time to about ten seconds. Lists
// are in that order. Numbers left over are never used.
const (
	blockLife  = 10 * time.Second
	blockLeast = 16
	blockMost  = 20000

	// refillTime bounds the wait for a block: all submits to the table set wait for it.
	refillTime = 5 * time.Second

	// runPatience is how long AllotRun tries to lock the row of a roll. Its caller may keep a
	// tenant from moving meanwhile.
	runPatience = 100 * time.Millisecond
)

type numbers struct {
	store  *Path
	mu     sync.Mutex
	blocks map[config.TypeKey]*block // by table set
}

type block struct {
	mu       sync.Mutex // stays locked while the database hands out numbers
	position int
	next     int64
	end      int64
	size     int64
	taken    time.Time
}

func newNumbers(s *Path) *numbers {
	return &numbers{store: s, blocks: map[config.TypeKey]*block{}}
}

// NumbersAtHand is AllotNumbers without the database; nil: the database is needed.
func (s *Path) NumbersAtHand(t *config.Type, n int) []int64 { return s.numbers.atHand(t, n) }

// AllotNumbers returns n fresh numbers of the open roll of a type, ascending, and the type with
// that open roll.
func (s *Path) AllotNumbers(
	ctx context.Context, t *config.Type, n int,
) (*config.Type, []int64, error) {
	return s.numbers.allot(ctx, t, n)
}

// AllotRun returns the first of n consecutive fresh numbers of the roll that is open as far as a
// type says. If the database has lost history, it is config.ErrElsewhere: a submit opens a roll.
//
// The numbers aren't taken in the caller's transaction: it would have the row of the roll locked to
// its end, while all submits to the roll wait for numbers.
func (s *Path) AllotRun(ctx context.Context, t *config.Type, n int) (first int64, err error) {
	for began := time.Now(); ; {
		first, err = s.numbers.allotRun(ctx, t, int64(n))
		if err == errOtherIncarnation {
			return 0, config.ErrElsewhere
		}
		// Each try waits for the lock.
		locked := postgres.State(err) == pgerrcode.LockNotAvailable
		if !locked || time.Since(began) > runPatience {
			return first, err
		}
	}
}

// allotRun is AllotRun without patience.
func (ns *numbers) allotRun(ctx context.Context, t *config.Type, n int64) (int64, error) {
	b := ns.block(t.Set().Key())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expire(t); b.end-b.next < n {
		if err := ns.refill(ctx, t, b, n); err != nil {
			return 0, err
		}
	}
	first := b.next
	b.next += n
	return first, nil
}

// allot returns n fresh numbers of the open roll of a type, ascending, and the type with that open
// roll.
func (ns *numbers) allot(
	ctx context.Context, t *config.Type, n int,
) (*config.Type, []int64, error) {
	// it may be newer by now
	if now, err := ns.store.core.Catalog.Type(t.Tenant, t.Name); err == nil {
		t = now
	}
	b := ns.block(t.Set().Key())
	b.mu.Lock()
	defer b.mu.Unlock()
	for tries := 0; ; tries++ {
		out, err := ns.allotFrom(ctx, b, t, n)
		if err != errOtherIncarnation || tries == incarnationTries {
			return t, out, err
		}
		if _, err := ns.store.EnterIncarnation(ctx, t.Set()); err != nil {
			return t, nil, err
		}
		before := t.Set().Name
		if t, err = ns.store.core.Refreshed(ctx, t); err != nil {
			return t, nil, err
		}
		if t.Set().Name != before {
			return t, nil, errOtherIncarnation
		}
	}
}

func (ns *numbers) allotFrom(
	ctx context.Context, b *block, t *config.Type, n int,
) ([]int64, error) {
	b.expire(t)
	out := make([]int64, 0, n)
	for len(out) < n {
		if b.next == b.end {
			if err := ns.refill(ctx, t, b, int64(n-len(out))); err != nil {
				return nil, err
			}
		}
		out = append(out, b.next)
		b.next++
	}
	return out, nil
}

// atHand returns n fresh numbers of the current block, ascending; nil: there are fewer, or it is
// expired.
func (ns *numbers) atHand(t *config.Type, n int) []int64 {
	b := ns.block(t.Set().Key())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(t)
	if b.end-b.next < int64(n) {
		return nil
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = b.next + int64(i)
	}
	b.next += int64(n)
	return out
}

// expire drops the numbers of a block that is too old, or of another roll.
func (b *block) expire(t *config.Type) {
	if b.position != t.End || time.Since(b.taken) > blockLife {
		b.next = 0
		b.end = 0
	}
}

func (ns *numbers) block(key config.TypeKey) *block {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	b := ns.blocks[key]
	if b == nil {
		b = &block{}
		ns.blocks[key] = b
	}
	return b
}

// UsedUp is the number at which a roll is full. Numbers above it are left for blocks, as nothing
// may reach the numbers of submits by SQL.
const UsedUp = asyncflow.FirstBySQL - 1<<32

// refill takes a block. It is twice as long as the last one if that was used up within its life,
// otherwise half as long. The block is durable before its first number is used: after a crash of
// the server another node must not get the same numbers. The same statement checks that the
// database lost no transactions since the roll was opened.
func (ns *numbers) refill(ctx context.Context, t *config.Type, b *block, need int64) error {
	if time.Since(b.taken) < blockLife {
		b.size *= 2
	} else {
		b.size /= 2
	}
	b.size = max(min(b.size, blockMost), blockLeast, need)
	ctx, cancel := context.WithTimeout(ctx, refillTime)
	defer cancel()
	var first int64
	set := t.Set()
	err := ns.store.core.HotDB(t.Tenant).QueryRow(ctx, takeNumbersSQL(set), set.Name, set.End,
		b.size, UsedUp).Scan(&first)
	if err == pgx.ErrNoRows {
		return errOtherIncarnation
	}
	// A worker of Citus that the tenant has left also says that there is no such table.
	if IsUndefinedTable(err) && !ns.store.core.Distributed() {
		return config.UnknownType(t.Name) // deleted meanwhile
	}
	if err != nil {
		return postgres.Wrap(err, "numbers.refill(%q, %q)", t.Tenant, t.Name)
	}
	b.position = t.End
	b.next = first
	b.end = first + b.size
	b.taken = time.Now()
	return nil
}

// TakeNumbersSQL takes $3 numbers from a roll, and returns the first one. The LIMIT keeps
// history() out of the condition, where Citus doesn't take it.
func takeNumbersSQL(set *config.TableSet) string {
	return set.Tables.SQL(0, `
		UPDATE {rolls} SET next_number = next_number + $3
		FROM (SELECT `+set.Tables.Qualify("history")+`(tableoid) AS present FROM {rolls}
		  WHERE table_set = $1 AND position = $2 LIMIT 1) here
		WHERE table_set = $1 AND position = $2 AND history = present AND next_number < $4
		RETURNING next_number - $3`)
}

// forget drops the unused numbers of table sets that are gone.
func (ns *numbers) forget(gone func(config.TypeKey) bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for key := range ns.blocks {
		if gone(key) {
			delete(ns.blocks, key)
		}
	}
}
