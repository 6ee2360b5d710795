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
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A type is limited if there are limits, flow keys, or an endpoint with a circuit breaker that
// isn't closed. Its tasks are leased under a lock of the type, so that the tasks in flight on all
// nodes can be counted. A task that may not run now moves from ready to wait, filed under what
// blocks it: its stage, or its flow key. So the head of ready can always run, and no lease reads
// blocked tasks. They come back
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
	// tasks were filed, or are next in another ready table: more may be due at once
	Filed bool
	Busy  bool // another lease of the type was under way: nothing was done
	// Keys are flow keys with a first blocked task that may be due: pass them to ReleaseKeys.
	Keys []string

	back time.Time // least order_time of what was put back into ready
}

// LeaseLimited is Lease for a limited type. It calls admit with the tasks in flight; admit returns
// the Admission that decides. If the rolls moved on, it calls admit again.
func (s *Path) LeaseLimited(
	ctx context.Context, t *config.Type, n int, admit func(InFlight) Admission,
) (g LimitedLease, err error) {
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

// limitedLease is one transaction of LeaseLimited.
type limitedLease struct {
	s      *Path
	conn   *postgres.TenantConn
	t      *config.Type
	n      int      // the most tasks that it leases
	stages []string // with blocked tasks
	lock   catalog.TriedLock
	now    time.Time
	turn   turn // of a fair type: the last one

	admission Admission
	from      int       // the position of the ready table that it takes from
	until     time.Time // the latest order_time that it takes
	scan      *lowwater.Scan
	fair      *fairTake // what it took from a fair type
	result    LimitedLease
}

func (s *Path) tryLeaseLimited(
	ctx context.Context, t *config.Type, n int, admit func(InFlight) Admission,
) (g LimitedLease, err error) {
	conn, err := s.core.HotDB(t.Tenant).Acquire(ctx)
	if err != nil {
		return g, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	l := &limitedLease{s: s, conn: conn, t: t, n: n}
	inFlight, stages, lock, err := s.beginLimited(ctx, conn, t, &l.turn)
	if err != nil {
		return g, err
	}
	l.stages, l.lock, l.now = stages, lock, s.core.Clock.Now()
	err = s.core.NoteHolder(ctx, conn, catalog.LockKey{Tenant: t.Tenant, Name: catalog.LeaseLock,
		Number: t.Number()}, lock)
	if err != nil || !lock.Ours() {
		return LimitedLease{Next: l.now.Add(limitPause), Busy: true},
			postgres.FirstError(err, l.end(ctx, &pgx.Batch{}, "ROLLBACK"))
	}
	l.result.Blocked = len(stages) > 0
	if t.MaxInFlight > 0 {
		l.n = min(n, t.MaxInFlight-inFlight.all())
	}
	if l.n <= 0 {
		return l.result, l.end(ctx, &pgx.Batch{}, lock.End())
	}
	var next time.Time
	if l.from, l.until = t.Live()[0], l.now; !t.Fair() {
		l.from, l.until, next, err = s.olderHead(ctx, conn, t, l.now, shortestRun)
	}
	if err != nil {
		return l.result, err
	}
	l.scan = s.core.Marks.Begin(t.Key(), l.from, l.now)
	l.result.Next = next
	l.admission = admit(inFlight)
	err = l.lease(ctx)
	l.result.Next = l.scan.End(l.result.Next, err)
	return l.result, err
}

// end ends the transaction with a statement, after others.
func (l *limitedLease) end(ctx context.Context, b *pgx.Batch, statement string) error {
	b.Queue(statement)
	return l.conn.Send(ctx, b)
}

// lease takes tasks as the admission says, and commits.
func (l *limitedLease) lease(ctx context.Context) (err error) {
	g := &l.result
	if l.t.Fair() {
		return l.leaseFair(ctx)
	}
	found, looked, last, err := takeCandidates(ctx, l.conn, l.t, l.from, l.now, l.until, l.n,
		l.scan, l.stages, l.admission)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	if err := l.judge(ctx, b, found); err != nil {
		return err
	}
	cut := l.until.Before(l.now) && looked < l.n
	g.Filed = len(found) > len(g.Leases) || cut && looked > 0
	switch {
	case cut:
		g.Next = l.now
		l.scan.Left(l.until)
	case looked < l.n && len(g.Leases) < l.n:
		l.queueNext(b)
	default:
		g.Next = l.now
		l.scan.Left(last)
	}
	end := "COMMIT"
	if len(found) == 0 {
		end = l.lock.End()
	}
	return NoteFailure(l.s, l.t.Tenant, l.end(ctx, b, end))
}

// judge decides which candidates may go, and adds what follows from that to a batch.
func (l *limitedLease) judge(ctx context.Context, b *pgx.Batch, found []Candidate) (err error) {
	g := &l.result
	if g.Keys, err = judge(ctx, l.conn, l.t, found, l.admission, l.n); err != nil {
		return err
	}
	for _, c := range found {
		g.Blocked = g.Blocked || c.Blocked != "" && c.Blocked != asyncflow.WaitFlow
	}
	g.Leases, g.back = l.s.queueJudged(b, l.t, found, l.now)
	return nil
}

// queueNext queues the question when the next task is due.
func (l *limitedLease) queueNext(b *pgx.Batch) {
	queueHeads(b, l.t, map[int]time.Time{l.from: l.scan.From()}, func(_ int, order time.Time) {
		if l.result.Next.IsZero() || order.Before(l.result.Next) {
			l.result.Next = order
		}
	})
}

// limitPause is how long a lease waits for another of its type.
const limitPause = 5 * time.Millisecond

// inFlightSQL counts the leases of a type by endpoint: all, and those that count for the health of
// an endpoint that is tried or ramped up. The time of an endpoint of the first array is in the
// second. A list instead of a join: the hot connections leave a join only nested loops.
const inFlightSQL = `
SELECT coalesce(endpoint::text, ''), count(*), count(*) FILTER (WHERE
  leased_at >= ($2::timestamptz[])[array_position($1::uuid[], endpoint)])
FROM {lease} WHERE type = $3 GROUP BY 1`

// beginLimited begins the transaction under the type's lock, and returns the tasks in flight and
// the stages with blocked tasks. If another lease of the type holds the lock, the caller doesn't
// wait, since there are other types.
func (s *Path) beginLimited(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type, last *turn,
) (f InFlight, stages []string, l catalog.TriedLock, err error) {
	f = InFlight{All: map[string]int{}, Lately: map[string]int{}}
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(t.SQL(0, catalog.TryLockSQL), catalog.LeaseLock, t.Number()).QueryRow(l.Scan)
	ids, since := config.HealthSince(t, s.core.Clock.Now())
	b.Queue(t.SQL(0, inFlightSQL), ids, since, t.Number()).
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
		stages = slices.DeleteFunc(stages, func(stage string) bool {
			stage, _ = t.Mapped(stage, 1)
			return t.Claims(stage)
		})
		return err
	})
	queueTurns(b, t, last)
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
