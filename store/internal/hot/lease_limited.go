package hot

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A type is limited if it has limits, flow keys, or an endpoint with a circuit breaker that isn't
// closed. Its tasks are leased under a lock of the type, so that the tasks in flight on all nodes
// can be counted. A task that may not run now moves from ready to wait, filed under what blocks it:
// its stage, or its flow key. So the head of ready can always run, and no lease reads blocked
// tasks. They come back
//
//	by stage     with a lease that finds capacity for the stage: it takes from wait and ready
//	by flow key  when a task of the key ends, or the key's rate allows another: see ReleaseKeys
//
// Types without limits skip all of this.

// LimitedLease is the result of a lease of a limited type.
type LimitedLease struct {
	Leases  []asyncflow.Lease
	Next    time.Time // as of Lease
	Blocked bool      // tasks of some stage may be blocked
	Filed   bool      // tasks were filed, or are next in another ready table: more may be due at once
	Busy    bool      // another lease of the type was under way: nothing was done
	// Keys are flow keys with a first blocked task that may be due: pass them to ReleaseKeys.
	Keys []string

	back time.Time // least order_time of what was put back into ready
}

// LeaseLimited is Lease for a limited type. It calls admit with the tasks in flight; admit returns
// the Admission that decides. If the rolls moved on, it calls admit again.
func (s *Path) LeaseLimited(
	ctx context.Context,
	t *config.Type,
	n int,
	admit func(InFlight) Admission,
) (
	g LimitedLease, err error) {
	if err := CheckCommits(ctx, s, t.Tenant); err != nil {
		return LimitedLease{}, postgres.Wrap(err, "LeaseLimited(%q, %q)", t.Tenant, t.Name)
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		g, err = s.tryLeaseLimited(ctx, t, n, admit)
		return err
	})
	if err != nil {
		return LimitedLease{}, postgres.Wrap(err, "LeaseLimited(%q, %q)", t.Tenant, t.Name)
	}
	s.core.Wakeups.Announce(t.Key(), g.back)
	AnnounceTaken(s, t, g.Leases)
	return g, nil
}

func (s *Path) tryLeaseLimited(ctx context.Context, t *config.Type, n int,
	admit func(InFlight) Admission) (
	g LimitedLease, err error) {
	conn, err := s.core.HotDB(t.Tenant).Acquire(ctx)
	if err != nil {
		return g, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	inFlight, stages, l, err := s.beginLimited(ctx, conn, t)
	if err != nil {
		return g, err
	}
	now := s.core.Clock.Now()
	err = s.core.NoteHolder(ctx, conn, catalog.LockKey{Tenant: t.Tenant, Name: catalog.LeaseLock,
		Number: t.Number()}, l)
	if err != nil || !l.Ours() {
		b := &pgx.Batch{}
		b.Queue("ROLLBACK")
		return LimitedLease{Next: now.Add(limitPause), Busy: true},
			postgres.FirstError(err, conn.Send(ctx, b))
	}
	g.Blocked = len(stages) > 0
	if t.MaxInFlight > 0 {
		n = min(n, t.MaxInFlight-inFlight.all())
	}
	if n <= 0 {
		b := &pgx.Batch{}
		b.Queue(l.End())
		return g, conn.Send(ctx, b)
	}
	from, until, next, err := s.olderHead(ctx, conn, t, now, shortestRun)
	if err != nil {
		return g, err
	}
	scan := s.core.Marks.Begin(t.Key(), from, now)
	defer func() { g.Next = scan.End(g.Next, err) }()
	g.Next = next
	admission := admit(inFlight)
	found, looked, last, err := takeCandidates(ctx, conn, t, from, now, until, n, scan, stages,
		admission)
	if err != nil {
		return g, err
	}
	if g.Keys, err = judge(ctx, conn, t, found, admission, n); err != nil {
		return g, err
	}
	for _, c := range found {
		g.Blocked = g.Blocked || c.Blocked != "" && c.Blocked != asyncflow.WaitFlow
	}
	b := &pgx.Batch{}
	g.Leases, g.back = s.queueJudged(b, t, found, now)
	cut := until.Before(now) && looked < n
	g.Filed = len(found) > len(g.Leases) || cut && looked > 0
	switch {
	case cut:
		g.Next = now
		scan.Left(until)
	case looked < n && len(g.Leases) < n:
		queueHeads(b, t, map[int]time.Time{from: scan.From()}, func(_ int, order time.Time) {
			if g.Next.IsZero() || order.Before(g.Next) {
				g.Next = order
			}
		})
	default:
		g.Next = now
		scan.Left(last)
	}
	if len(found) == 0 {
		b.Queue(l.End())
	} else {
		b.Queue("COMMIT")
	}
	return g, NoteFailure(s, conn.Send(ctx, b))
}

// limitPause is how long a lease waits for another of its type.
const limitPause = 5 * time.Millisecond

// beginLimited begins the transaction under the type's lock, and returns the tasks in flight and
// the stages with blocked tasks. If another lease of the type has the lock, the caller doesn't
// wait, since there are other types.
func (s *Path) beginLimited(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type,
) (f InFlight, stages []string, l catalog.TriedLock, err error) {
	f = InFlight{All: map[string]int{}, Lately: map[string]int{}}
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(t.SQL(0, catalog.TryLockSQL), catalog.LeaseLock, t.Number()).QueryRow(l.Scan)
	b.Queue(t.SQL(0, `SELECT coalesce(endpoint::text, ''), count(*), count(*) FILTER (WHERE `+
		`leased_at >= $1) FROM {lease} WHERE type = $2 GROUP BY 1`), config.HealthSince(t, s.core.Clock.Now()),
		t.Number()).
		Query(func(rows pgx.Rows) error {
			var endpoint string
			var all, lately int
			_, err := pgx.ForEachRow(rows, []any{&endpoint, &all, &lately}, func() error {
				f.All[endpoint] = all
				f.Lately[endpoint] = lately
				return nil
			})
			return err
		})
	b.Queue(t.SQL(0, `SELECT ARRAY(`+BlockedStagesSQL("$1")+`)`),
		t.Number()).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&stages)
		stages = slices.DeleteFunc(stages, t.Claimed)
		return err
	})
	onNewest := config.QueueNewest(b, t)
	if err := conn.Send(ctx, b); err != nil {
		return f, nil, l, err
	}
	return f, stages, l, onNewest()
}

// BlockedStagesSQL finds the stages with blocked tasks of a type; number is an expression. It reads
// one index entry for each stage, however many tasks there are.
func BlockedStagesSQL(number string) string {
	return strings.ReplaceAll(`
WITH RECURSIVE s (stage) AS (
  (SELECT stage FROM {wait} WHERE type = $type AND until = 'infinity' AND reason <> 'flow_key'
    ORDER BY stage LIMIT 1)
  UNION ALL
  SELECT (SELECT w.stage FROM {wait} w
    WHERE w.type = $type AND w.until = 'infinity' AND w.reason <> 'flow_key' AND w.stage > s.stage
    ORDER BY w.stage LIMIT 1)
  FROM s WHERE s.stage IS NOT NULL)
SELECT stage FROM s WHERE stage IS NOT NULL`, "$type", number)
}
