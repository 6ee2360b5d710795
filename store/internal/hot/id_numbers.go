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

	// runPatience is how long AllotRun tries to lock the row of a roll: other tenants wait for
	// their turn meanwhile.
	runPatience = time.Second
)

type numbers struct {
	store  *Path
	mu     sync.Mutex
	blocks map[config.TypeKey]*block // by table set
}

type block struct {
	refills chan struct{} // has an element while the database hands out numbers

	mu       sync.Mutex // nobody has it while it waits
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
func (s *Path) NumbersAtHand(t *config.Type, n int) []int64 {
	first, ok := s.RunAtHand(t, n)
	if !ok {
		return nil
	}
	return consecutive(make([]int64, 0, n), first, n)
}

// RunAtHand is AllotRun without the database, and without a wait; false: the database is needed.
func (s *Path) RunAtHand(t *config.Type, n int) (first int64, ok bool) {
	b := s.numbers.block(t.Set().Key())
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has(t) || b.end-b.next < int64(n) {
		return 0, false
	}
	first = b.next
	b.next += int64(n)
	return first, true
}

// AllotNumbers returns n fresh numbers of the open roll of a type, ascending, and the type with
// that open roll.
func (s *Path) AllotNumbers(
	ctx context.Context, t *config.Type, n int,
) (_ *config.Type, out []int64, err error) {
	t, err = s.numbers.allot(ctx, t, func(b *block, t *config.Type) error {
		out = b.take(t, n)
		if len(out) == n {
			return nil
		}
		missing := n - len(out)
		first, err := s.numbers.refill(ctx, t, b, int64(missing))
		out = consecutive(out, first, missing)
		return err
	})
	if err != nil {
		out = nil
	}
	return t, out, err
}

// AllotRun is AllotNumbers for consecutive numbers, of which it returns the first one. It soon
// gives up while the row of the roll is locked. A type that is newer than this node's catalog stays
// as it is.
func (s *Path) AllotRun(
	ctx context.Context, t *config.Type, n int,
) (_ *config.Type, first int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, refillTime)
	defer cancel()
	for began := time.Now(); ; {
		t, err = s.numbers.allot(ctx, t, func(b *block, t *config.Type) (err error) {
			first, err = s.numbers.refill(ctx, t, b, int64(n))
			return err
		})
		// Each try waits for the lock.
		locked := postgres.State(err) == pgerrcode.LockNotAvailable
		if !locked || time.Since(began) > runPatience {
			return t, first, err
		}
	}
}

// allot runs take, which gets numbers of the open roll of a type, while no other call asks the
// database for numbers of its table set. It returns the type with that open roll.
func (ns *numbers) allot(
	ctx context.Context, t *config.Type, take func(*block, *config.Type) error,
) (*config.Type, error) {
	// The catalog may be newer or older by now: positions grow, also when a type changes its set.
	now, err := ns.store.core.Catalog.Type(t.Tenant, t.Name)
	if err == nil && now.End >= t.End {
		t = now
	}
	b := ns.block(t.Set().Key())
	select {
	case b.refills <- struct{}{}:
		defer func() { <-b.refills }()
	case <-ctx.Done():
		return t, postgres.Wrap(ctx.Err(), "wait for numbers of %q, %q", t.Tenant, t.Name)
	}
	for tries := 0; ; tries++ {
		err := take(b, t)
		if err != errOtherIncarnation || tries == incarnationTries {
			return t, err
		}
		if _, err := ns.store.EnterIncarnation(ctx, t.Set()); err != nil {
			return t, err
		}
		now, err := ns.store.core.Refreshed(ctx, t)
		if err != nil {
			return t, err
		}
		before := t.Set().Name
		if t = now; t.Set().Name != before {
			return t, errOtherIncarnation
		}
	}
}

// take returns up to n fresh numbers of the block, ascending.
func (b *block) take(t *config.Type, n int) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]int64, 0, n)
	if b.has(t) {
		n = min(n, int(b.end-b.next))
		out = consecutive(out, b.next, n)
		b.next += int64(n)
	}
	return out
}

// consecutive appends n numbers.
func consecutive(to []int64, first int64, n int) []int64 {
	for i := range n {
		to = append(to, first+int64(i))
	}
	return to
}

// has reports whether the numbers of the block are young enough, and of the open roll of a type.
// b.mu is held. Numbers of another roll stay: the caller may know an older one.
func (b *block) has(t *config.Type) bool {
	return b.position == t.End && time.Since(b.taken) <= blockLife
}

func (ns *numbers) block(key config.TypeKey) *block {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	b := ns.blocks[key]
	if b == nil {
		b = &block{refills: make(chan struct{}, 1)}
		ns.blocks[key] = b
	}
	return b
}

// UsedUp is the number at which a roll is full. Numbers above it are left for blocks, as nothing
// may reach the numbers of submits by SQL.
const UsedUp = asyncflow.FirstBySQL - 1<<32

// refill takes a block of at least need numbers, and returns the first of so many, which are the
// caller's. It is twice as long as the last one if that was used up within its life, otherwise half
// as long. The block is durable before its first number is used: after a crash of the server
// another node must not get the same numbers. The same statement checks that the database lost no
// transactions since the roll was opened.
func (ns *numbers) refill(
	ctx context.Context, t *config.Type, b *block, need int64,
) (first int64, err error) {
	size := b.nextSize(need)
	ctx, cancel := context.WithTimeout(ctx, refillTime)
	defer cancel()
	set := t.Set()
	err = ns.store.core.HotDB(t.Tenant).QueryRow(ctx, takeNumbersSQL(set), set.Name, set.End,
		size, UsedUp).Scan(&first)
	if err == pgx.ErrNoRows {
		return 0, errOtherIncarnation
	}
	// A worker of Citus that the tenant has left also says that there is no such table.
	if IsUndefinedTable(err) && !ns.store.core.Distributed() {
		return 0, config.UnknownType(t.Name) // deleted meanwhile
	}
	if err != nil {
		return 0, postgres.Wrap(err, "numbers.refill(%q, %q)", t.Tenant, t.Name)
	}
	b.put(t, first+need, first+size, size)
	return first, nil
}

// nextSize returns how many numbers the next block has.
func (b *block) nextSize(need int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := b.size / 2
	if time.Since(b.taken) < blockLife {
		size = b.size * 2
	}
	return max(min(size, blockMost), blockLeast, need)
}

// put makes numbers the block's, unless it has more of them, or some of a later roll: they stay
// until they are too old.
func (b *block) put(t *config.Type, next, end, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = size
	young := time.Since(b.taken) <= blockLife
	if young && (b.position > t.End || b.position == t.End && b.end-b.next > end-next) {
		return
	}
	b.position = t.End
	b.next = next
	b.end = end
	b.taken = time.Now()
}

// takeNumbersSQL takes $3 numbers from a roll, and returns the first one. The LIMIT keeps
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
