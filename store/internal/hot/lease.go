package hot

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// LeaseMargin is how much longer a lease stands than its stage's timeout: time to send the delivery
// and to settle its outcome. The time that it may wait to be sent with other tasks is added to
// that.
const LeaseMargin = 5 * time.Second

// Lease takes up to n due tasks of a type for this node, first in order first, and returns them
// with their contexts and options. next is when the next task of the type is due, as far as can be
// seen; zero: there is none. If more tasks may be due now, next is not in the future.
//
// It is one transaction in two round trips. If the answer to its COMMIT is lost, the leases run out
// and are rescued.
func (s *Path) Lease(
	ctx context.Context, t *config.Type, n int,
) (leases []asyncflow.Lease, next time.Time, err error) {
	if err = CheckCommits(ctx, s, t.Tenant); err != nil {
		return nil, time.Time{}, postgres.Wrap(err, "Lease(%q, %q)", t.Tenant, t.Name)
	}
	for run := range mostRuns {
		shortest := 1
		if run >= exactRuns {
			shortest = shortestRun
		}
		var some []asyncflow.Lease
		var more bool
		err = s.core.FollowRolls(ctx, t, func(t *config.Type) (err error) {
			some, next, more, err = s.tryLease(ctx, t, n-len(leases), shortest)
			return err
		})
		if err != nil && len(leases) == 0 {
			return nil, time.Time{}, postgres.Wrap(err, "Lease(%q, %q)", t.Tenant, t.Name)
		}
		if err != nil { // the next lease meets it again
			return leases, s.core.Clock.Now(), nil
		}
		AnnounceTaken(s, t, some)
		if leases = append(leases, some...); !more {
			break
		}
	}
	return leases, next, nil
}

// While two ready tables are live, a Lease takes a run of tasks from one of them, then from the
// other, each in a transaction.
const (
	mostRuns = 16
	// After exactRuns, a run takes shortestRun tasks at least, if they are due, although tasks in
	// the other table come before: where their orders mix, all runs would be short.
	exactRuns   = 4
	shortestRun = 10
)

// tryLease is a transaction of Lease. more reports whether the tasks that come next in order are in
// another ready table.
func (s *Path) tryLease(
	ctx context.Context, t *config.Type, n, shortest int,
) (leases []asyncflow.Lease, next time.Time, more bool, err error) {
	conn, err := s.core.HotDB(t.Tenant).Acquire(ctx)
	if err != nil {
		return nil, next, false, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	now := s.core.Clock.Now()
	from, until, next, err := s.olderHead(ctx, conn, t, now, shortest)
	if err != nil {
		return nil, next, false, err
	}
	scan := s.core.Marks.Begin(t.Key(), from, now)
	defer func() { next = scan.End(next, err) }()
	if leases, err = takeReady(ctx, conn, t, from, until, n, scan); err != nil {
		return nil, next, false, err
	}
	cut := until.Before(now) && len(leases) < n
	b := &pgx.Batch{}
	if len(leases) > 0 {
		s.queueTaken(b, t, leases, nil, now)
	}
	switch {
	case cut:
		next = now
		scan.Left(until)
	case len(leases) < n:
		queueHeads(b, t, map[int]time.Time{from: scan.From()}, func(_ int, order time.Time) {
			if next.IsZero() || order.Before(next) {
				next = order
			}
		})
	default:
		next = now
		scan.Left(lastOf(leases))
	}
	b.Queue("COMMIT")
	return leases, next, cut && len(leases) > 0, NoteFailure(s, t.Tenant, conn.Send(ctx, b))
}

// queueHeads reads the heads of the live ready tables; if there is a mark for a table, from that
// time on. It calls tell for each table with a head.
func queueHeads(
	b *pgx.Batch, t *config.Type, marks map[int]time.Time, tell func(position int, order time.Time),
) {
	for _, p := range t.Live() {
		b.Queue(t.SQL(p, records.HeadSQL), lowwater.Bound(marks[p]),
			t.Number()).QueryRow(func(row pgx.Row) error {
			var order time.Time
			switch err := row.Scan(&order); err {
			case nil:
				tell(p, order)
				return nil
			case pgx.ErrNoRows:
				return nil
			default:
				return err
			}
		})
	}
}

// lastOf returns the greatest order_time of some leases.
func lastOf(leases []asyncflow.Lease) (last time.Time) {
	for _, l := range leases {
		if l.OrderTime.After(last) {
			last = l.OrderTime
		}
	}
	return last
}

// olderHead returns the position of the ready table to lease from, and until which order_time: now,
// or less. For a while after a roll two are live: then it is the one with the older head, up to the
// head of the other or for the shortest run, so that priorities and retries keep their meaning.
// olderHead begins at their marks, as leases do; next is when rows below the marks must be read.
func (s *Path) olderHead(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type, now time.Time, shortest int,
) (from int, until, next time.Time, err error) {
	live := t.Live()
	from = live[0]
	until = now
	if len(live) == 1 {
		return from, until, next, nil
	}
	scans := map[int]*lowwater.Scan{}
	heads := map[int]*readyHead{}
	b := &pgx.Batch{}
	for _, p := range live {
		scans[p] = s.core.Marks.Begin(t.Key(), p, now)
		heads[p] = &readyHead{}
		queueHead(b, t, p, shortest, scans[p].From(), now, heads[p])
	}
	err = conn.Send(ctx, b)
	for _, p := range live {
		head := heads[p].first
		if !head.IsZero() {
			scans[p].Left(head)
		}
		if oldest := heads[from].first; !head.IsZero() && (oldest.IsZero() || head.Before(oldest)) {
			from = p
		}
	}
	for _, p := range live {
		if head := heads[p].first; p != from && !head.IsZero() && head.Before(until) {
			until = head
		}
	}
	if run := heads[from].run; until.Before(run) {
		until = run
	}
	for _, scan := range scans {
		scan.Taken()
		next = scan.End(next, err)
	}
	return from, until, next, err
}

// readyHead are the order_times of the first task of a ready table, and of the last one of the
// shortest run that is due; zero: there is none.
type readyHead struct{ first, run time.Time }

// queueHead reads the head of a ready table from its mark on.
func queueHead(
	b *pgx.Batch, t *config.Type, position, shortest int, mark, now time.Time, head *readyHead,
) {
	b.Queue(t.SQL(position, records.HeadsSQL), lowwater.Bound(mark), t.Number(), shortest).
		Query(func(rows pgx.Rows) error {
			var order time.Time
			_, err := pgx.ForEachRow(rows, []any{&order}, func() error {
				if head.first.IsZero() {
					head.first = order
				}
				if !order.After(now) {
					head.run = order
				}
				return nil
			})
			return err
		})
}

// takeReady begins the transaction and takes token rows from the ready table at a
// position.
func takeReady(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type, from int, now time.Time, n int,
	scan *lowwater.Scan,
) ([]asyncflow.Lease, error) {
	leases := make([]asyncflow.Lease, 0, n)
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(t.SQL(from, records.TakeReadySQL), now, n,
		lowwater.Bound(scan.From()), t.Number()).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var l asyncflow.Lease
			var seq, attempt int16
			err := rows.Scan(&l.ID.Number, &seq, &l.Stage, &attempt, &l.OrderTime, &l.DueAt)
			if err != nil {
				return err
			}
			l.ID.Type = t.Name
			l.Seq = int(seq)
			l.Stage, l.Attempt = t.Mapped(l.Stage, int(attempt))
			leases = append(leases, l)
		}
		return rows.Err()
	})
	defer scan.Taken()
	err := conn.Send(ctx, b)
	slices.SortFunc(leases, LeasesInOrder)
	return leases, err
}

// LeasesInOrder compares leases by their order.
func LeasesInOrder(a, b asyncflow.Lease) int {
	return place{a.OrderTime, a.ID.Number}.compare(place{b.OrderTime, b.ID.Number})
}

// BeginLeases sets the begin and end of leases. Leases that may wait on their node are Unsent.
func BeginLeases(leases []*asyncflow.Lease, t *config.Type, now time.Time) {
	for _, l := range leases {
		timeout := asyncflow.MinTimeout
		if stage := t.StageIndex(l.Stage); stage >= 0 {
			timeout = t.Stages[stage].Timeout.Std()
		}
		wait := config.Gathering(t, l.Stage)
		l.LeasedAt = now
		l.Until = now.Add(timeout + wait + LeaseMargin)
		l.Unsent = wait > 0
	}
}

// queueTaken adds the statements for leases of tasks from ready or wait to a batch. They read the
// payloads, which queueTaken fills in, and write the lease rows. keys are the flow keys; nil: none.
func (s *Path) queueTaken(
	b *pgx.Batch, t *config.Type, leases []asyncflow.Lease, keys postgres.Texts, now time.Time,
) {
	all := make([]*asyncflow.Lease, len(leases))
	byID := make(map[int64]*asyncflow.Lease, len(leases))
	for i := range leases {
		all[i] = &leases[i]
		byID[leases[i].ID.Number] = &leases[i]
	}
	BeginLeases(all, t, now)
	QueuePayloads(s, b, t, leases, byID)
	rows := records.Inserts{Node: s.core.Config.Node}
	rows.AddLeases(t, all, keys)
	rows.Queue(b, now)
}

// AnnounceTaken announces leases to the callers that follow their tasks.
func AnnounceTaken(s *Path, t *config.Type, leases []asyncflow.Lease) {
	s.countLeased(t, len(leases))
	key := t.Key()
	for _, l := range leases {
		s.core.Watchers.Tell(key, l.ID.Number)
	}
}
