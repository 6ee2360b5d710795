package store

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// For tests that look at the plans of the hot statements.
var HotSettings = postgres.HotSettings

const (
	TakeReadySQL  = takeReadySQL
	TakeOutboxSQL = takeOutboxSQL
	HeadSQL       = headSQL

	ConfirmSQL     = confirmSQL
	EndLeasesSQL   = endLeasesSQL
	TakeLeaseSQL   = takeLeaseSQL
	ExtendLeaseSQL = extendLeaseSQL
)

// Fill returns a statement with the names of the type's tables at a position in it. {number} is the
// number of the type.
func (t *Type) Fill(position int, sql string) string {
	return strings.ReplaceAll(t.at(position, sql), "{number}", strconv.Itoa(int(t.number)))
}

// Rolls returns the positions of the rolls that may have tasks of the type, ascending.
func (t *Type) Rolls() []int { return t.rolls() }

// ForgetNumbers has the next submits take new blocks of numbers.
func (s *Store) ForgetNumbers() { s.numbers = newNumbers(s.hotPath) }

// KeepNumbers has the block of numbers of a type last.
func (s *Store) KeepNumbers(key TypeKey) {
	b := s.numbers.block(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = time.Now().Add(time.Hour)
}

// Base returns the pool for what belongs to no tenant.
func (s *Store) Base() *pgxpool.Pool { return s.base }

// RoleOf returns the role of a tenant as the store has it.
func (s *Store) RoleOf(ctx context.Context, tenant string) (string, error) {
	return s.roles.Of(ctx, tenant)
}

// WriteMinutes writes what CountAttempt has counted.
func (s *Store) WriteMinutes(ctx context.Context) error { return s.writeMinutes(ctx) }

// LimitLocks sets how long another transaction may keep this node out of a lock.
func (s *Store) LimitLocks(limit time.Duration) {
	s.holders.mu.Lock()
	defer s.holders.mu.Unlock()
	s.holders.limit = limit
}

// Number returns the number of the type.
func (t *Type) Number() int32 { return t.number }

// BaseRole returns the base role.
func (s *Store) BaseRole() string { return s.roles.Base() }

// Outside runs a statement of a tenant outside of a transaction.
func (s *Store) Outside(ctx context.Context, tenant, sql string) error {
	return s.of(tenant).Outside(ctx, sql)
}

// Roles are all ways to run statements of a tenant: each gives the role that one ran
// under. do, unless it is "", is run after it in the same transaction where there is one.
func (s *Store) Roles(ctx context.Context, tenant, do string) map[string]func() (string, error) {
	const who = `SELECT current_user::text`
	one := func(db querier) func() (string, error) {
		return func() (role string, err error) { return role, db.QueryRow(ctx, who).Scan(&role) }
	}
	batch := func(role *string, begin string) *pgx.Batch {
		b := &pgx.Batch{}
		if begin != "" {
			b.Queue(begin)
		}
		b.Queue(who).QueryRow(func(row pgx.Row) error { return row.Scan(role) })
		if do != "" {
			b.Queue(do)
		}
		return b
	}
	return map[string]func() (string, error){
		"query":     one(s.of(tenant)),
		"hot query": one(s.hot(tenant)),
		"unprepared": func() (role string, err error) {
			return role, s.of(tenant).QueryRow(ctx, who, pgx.QueryExecModeExec).Scan(&role)
		},
		"exec": func() (role string, err error) {
			if do == "" {
				return one(s.of(tenant))()
			}
			_, err = s.of(tenant).Exec(ctx, do)
			return "", err
		},
		"batch": func() (role string, err error) {
			return role, s.of(tenant).Send(ctx, batch(&role, ""))
		},
		"begun batch": func() (role string, err error) {
			b := batch(&role, "BEGIN")
			b.Queue("COMMIT")
			return role, s.of(tenant).Send(ctx, b)
		},
		"transaction": func() (role string, err error) {
			return role, pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
				return tx.SendBatch(ctx, batch(&role, "")).Close()
			})
		},
		"connection": func() (role string, err error) {
			conn, err := s.hot(tenant).Acquire(ctx)
			if err != nil {
				return "", err
			}
			defer conn.Release()
			if err := conn.Send(ctx, batch(new(string), "BEGIN")); err != nil {
				return "", err
			}
			b := batch(&role, "")
			b.Queue("COMMIT")
			return role, conn.Send(ctx, b)
		},
	}
}

// FoldBatch is the most rows that a fold takes at once.
const FoldBatch = foldBatch

// MigrateSchema exposes schema.MigrateOne, under the login role.
func MigrateSchema(ctx context.Context, url, name string, set fs.FS) (MigrationStatus, error) {
	return schema.MigrateOne(ctx, url, name, set, "")
}

// PageLook is the most candidates that are looked at for a page.
const PageLook = pageLook

// CountLook is the most candidates that are looked at for a count.
const CountLook = countLook

// PageText is about the most bytes of contexts and outputs that are searched for a page.
const PageText = pageText

// ExplainPage returns the plans of the statements of a filter's widest look, carried
// out, as JSON.
func (s *Store) ExplainPage(ctx context.Context, t *Type, f Filter) (plans []string, err error) {
	c, err := s.criteriaFor(ctx, t, f)
	if err != nil {
		return nil, err
	}
	c.bytes = pageText
	window := c.windowArgs(t, asyncflow.NewTaskID(t.Name, t.End, 0).Number,
		asyncflow.NewTaskID(t.Name, t.End+1, 0).Number, pageLook)
	for sql, args := range map[string][]any{
		c.windowSQL(): window,
		c.listSQL():   append(append(slices.Clip(window), f.Limit), c.args(t)...),
	} {
		plan, err := s.explain(ctx, t.Tenant, t.at(t.End, sql), args...)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

func (s *Store) explain(
	ctx context.Context,
	tenant, sql string,
	args ...any,
) (plan string, err error) {
	err = s.searching(ctx, tenant, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `EXPLAIN (ANALYZE, FORMAT JSON) `+sql, args...).Scan(&plan)
	})
	return plan, err
}

// InsertAudit exposes insertAudit.
var InsertAudit = insertAudit

// ForgetWritten makes an audited call look as if the answer to its commit was lost.
func (a *AuditedCall) ForgetWritten() { a.written = false }

// Shift has the clock go on at another time.
func (c *Clock) Shift(d time.Duration) { c.offset.Add(int64(d)) }

// KeptTypes returns of how many types and table sets the store keeps something besides the catalog.
func (s *Store) KeptTypes() int {
	kept := map[TypeKey]bool{}
	collect := func(key TypeKey) bool {
		kept[key] = true
		return false
	}
	s.marks.Forget(collect)
	s.numbers.forget(collect)
	s.leasedRows.Range(func(key, _ any) bool { return !collect(key.(TypeKey)) })
	return len(kept)
}

// RefreshClock measures the offset of the clock.
func (s *Store) RefreshClock(ctx context.Context) error { return s.Clock.refresh(ctx) }

// TakeClock has the clock take over a measurement of the offset, made at a time since it began
// to run, and returns the offset that it goes by: all but the first in nanoseconds.
func (c *Clock) TakeClock(at time.Duration, least, most int64) int64 {
	c.take(at, clockSample{least, most})
	return c.offset.Load()
}

// PoolShare returns how many connections of the base pool a tenant may have.
func (s *Store) PoolShare() int { return s.shares.Each() }

// SetChunks bounds transactions of FollowUp, so that few tasks need several.
func (s *Store) SetChunks(edges, spawn, stop int) {
	s.chunks.edges, s.chunks.spawn, s.chunks.stop = edges, spawn, stop
}

// SetSweptChildren bounds a sweep of fan-outs.
func (s *Store) SetSweptChildren(n int) { s.chunks.count = n }

// SetCountTime changes the time that TaskCount may take.
func (s *Store) SetCountTime(d time.Duration) { s.countTime = d }

// FollowUpRows is one transaction of FollowUp over at most n rows, without further tries. It does
// nothing if it can't get a lock: a node that has died may hold it for a moment.
func (s *Store) FollowUpRows(ctx context.Context, tenant string, n int) (more bool, err error) {
	more, _, err = s.tryFollowUp(ctx, tenant, n, nil)
	if sqlState(err) == pgerrcode.LockNotAvailable {
		return true, nil
	}
	return more, err
}

// RingsOf returns a number for each task that waits for others, the same for those that wait for
// each other.
func RingsOf(on map[int64][]int64) map[int64]int {
	edges := map[taskRef][]taskRef{}
	for id, others := range on {
		for _, other := range others {
			edges[taskRef{1, id}] = append(edges[taskRef{1, id}], taskRef{1, other})
		}
	}
	all := map[int64]int{}
	for k, ring := range ringsOf(edges) {
		all[k.id] = ring
	}
	return all
}

// LingerAfter returns how long what a settlement has left to do may wait for more.
func LingerAfter(t *Type, s *asyncflow.Settlement) time.Duration { return lingerAfter(t, s) }

// StatsStatements returns the statements that count a tenant's types.
func (s *Store) StatsStatements(tenant string) (all []string) {
	for _, some := range byTables(slices.Collect(maps.Values(s.Catalog.TypesOf(tenant)))) {
		all = append(all, statsSQL(some))
	}
	return all
}
