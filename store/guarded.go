package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// A type is guarded that has limits, or flow keys, or an endpoint that isn't well. Its
// tasks are leased under a lock of the type, so that what is under way on all nodes can
// be counted. A task that may not run now goes from ready to wait, filed under what holds
// it back: its stage, or its flow key. So the head of ready is always what can run, and
// no lease looks at those that are held. They come back
//
//	by stage  with a lease that finds room for the stage: it takes from wait and ready
//	by key    when a task of the key makes room, or its rate does: see freed and Unhold
//
// Types that aren't guarded know nothing of this.

// Guarded tells whether the leases of a type need an Admission.
func (t *Type) Guarded(now time.Time) bool {
	if t.Limits != (asyncflow.Limits{}) || t.Flow != nil {
		return true
	}
	for _, endpoints := range t.endpoints {
		for _, e := range endpoints {
			if e.Limits != (asyncflow.Limits{}) || e.Health.Room(now) != asyncflow.Unbounded {
				return true
			}
		}
	}
	return false
}

// InFlight counts the leases of a type by the endpoint that they are for: "" where it
// doesn't matter.
type InFlight struct {
	All map[string]int
	// Lately counts those that were begun since an endpoint is tried again, or ramped up:
	// what it has had from before, answered with 202, says nothing of its health.
	Lately map[string]int
}

func (f InFlight) all() (sum int) {
	for _, n := range f.All {
		sum += n
	}
	return sum
}

// Begin counts one more.
func (f InFlight) Begin(endpoint string) {
	f.All[endpoint]++
	f.Lately[endpoint]++
}

// Admission decides which tasks a lease takes. It is asked in the order of the tasks.
type Admission interface {
	// Room returns how many tasks of a stage may be admitted at most.
	Room(stage string) int
	// Admit tells which endpoint the next task of a stage may go to ("": any), or what
	// keeps it.
	Admit(stage string) (endpoint string, held asyncflow.WaitReason)
	// AdmitKey tells whether the rate of a flow key allows another task.
	AdmitKey(key string) bool
}

// candidate is a task that a lease may take.
type candidate struct {
	asyncflow.Lease // its Options are read later
	key             string
	held            asyncflow.WaitReason // what keeps it; "": nothing
	back            bool                 // nothing does, but there are too many
}

// Guarded is what came of a lease of a guarded type.
type Guarded struct {
	Leases []asyncflow.Lease
	Next   time.Time // as of Lease
	Held   bool      // tasks may be held by stage
	Filed  bool      // tasks were: it is worth while to look for more at once
	Busy   bool      // another lease of the type was under way: nothing was done

	again []string  // flow keys with tasks that are held and whose turn it may be
	back  time.Time // least order_time of what was put back into ready
}

// LeaseGuarded is Lease for a guarded type. admit is called with what is under way, and
// returns who decides; it may be called again when the rolls have moved on.
func (s *Store) LeaseGuarded(ctx context.Context, t *Type, n int, admit func(InFlight) Admission) (g Guarded, err error) {
	err = s.following(ctx, t, func(t *Type) error {
		g, err = s.tryLeaseGuarded(ctx, t, n, admit)
		return err
	})
	if err != nil {
		return Guarded{}, wrap(err, "LeaseGuarded(%q, %q)", t.Tenant, t.Name)
	}
	s.unholds.add(t.Key(), g.again...)
	s.Wakeups.Announce(t.Key(), g.back)
	s.moved(t.Key(), len(g.Leases))
	for _, l := range g.Leases {
		s.watched.tell(t.Key(), l.ID.Number)
	}
	return g, nil
}

func (s *Store) tryLeaseGuarded(ctx context.Context, t *Type, n int, admit func(InFlight) Admission) (g Guarded, err error) {
	conn, err := s.hot(t.Tenant).Acquire(ctx)
	if err != nil {
		return g, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	inFlight, stages, ours, err := s.beginGuarded(ctx, conn, t)
	if err != nil {
		return g, err
	}
	now := s.Clock.Now()
	if !ours {
		b := &pgx.Batch{}
		b.Queue("ROLLBACK")
		return Guarded{Next: now.Add(guardPause), Busy: true}, conn.Send(ctx, b)
	}
	g.Held = len(stages) > 0
	if t.MaxInFlight > 0 {
		n = min(n, t.MaxInFlight-inFlight.all())
	}
	if n <= 0 {
		b := &pgx.Batch{}
		b.Queue("ROLLBACK")
		return g, conn.Send(ctx, b)
	}
	from, next, err := s.olderHead(ctx, conn, t, now)
	if err != nil {
		return g, err
	}
	scan := s.marks.begin(t.Key(), from, now)
	defer func() { g.Next = scan.end(g.Next, err) }()
	g.Next = next
	admission := admit(inFlight)
	found, looked, last, err := takeCandidates(ctx, conn, t, from, now, n, scan, stages, admission)
	if err != nil {
		return g, err
	}
	if g.again, err = judge(ctx, conn, t, found, admission, n); err != nil {
		return g, err
	}
	for _, c := range found {
		g.Held = g.Held || c.held != "" && c.held != asyncflow.WaitFlow
	}
	b := &pgx.Batch{}
	g.Leases, g.back = s.queueJudged(b, t, found, now)
	g.Filed = len(found) > len(g.Leases)
	if looked < n && len(g.Leases) < n {
		queueHeads(b, t, map[int]time.Time{from: scan.from}, func(_ int, order time.Time) {
			if g.Next.IsZero() || order.Before(g.Next) {
				g.Next = order
			}
		})
	} else {
		g.Next, scan.last = now, last
	}
	b.Queue("COMMIT")
	return g, conn.Send(ctx, b)
}

// guardPause is how long a lease waits for another of its type.
const guardPause = 5 * time.Millisecond

// beginGuarded begins the transaction under the type's lock, and returns what is under
// way and the stages with tasks that are held. It is not ours when another lease of the
// type has the lock: nobody waits for it, as there are other types.
func (s *Store) beginGuarded(ctx context.Context, conn *tenantConn, t *Type) (f InFlight, stages []string, ours bool, err error) {
	f = InFlight{All: map[string]int{}, Lately: map[string]int{}}
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(`SELECT pg_try_advisory_xact_lock($1)`, guardLock(t)).QueryRow(func(row pgx.Row) error { return row.Scan(&ours) })
	b.Queue(t.tables.at(0, `SELECT coalesce(endpoint::text, ''), count(*), count(*) FILTER (WHERE leased_at >= $1) FROM {lease} GROUP BY 1`), t.healthSince(s.Clock.Now())).
		Query(func(rows pgx.Rows) error {
			var endpoint string
			var all, lately int
			_, err := pgx.ForEachRow(rows, []any{&endpoint, &all, &lately}, func() error {
				f.All[endpoint], f.Lately[endpoint] = all, lately
				return nil
			})
			return err
		})
	b.Queue(t.tables.at(0, `SELECT ARRAY(`+heldStagesSQL+`)`)).QueryRow(func(row pgx.Row) error { return row.Scan(&stages) })
	onNewest := queueNewest(b, t)
	if err := conn.Send(ctx, b); err != nil {
		return f, nil, false, err
	}
	return f, stages, ours, onNewest()
}

// healthSince returns from when on leases count for the health of the type's endpoints
// that are tried or ramped up: the least of those times.
func (t *Type) healthSince(now time.Time) (since time.Time) {
	since = now
	for _, e := range t.AllEndpoints() {
		at := e.Health.Since
		if e.Health.At(now) == asyncflow.HealthHalfOpen {
			at = e.Health.Until
		}
		if e.Health.Room(now) > 0 && at.Before(since) {
			since = at
		}
	}
	return since
}

// guardLock returns the key of the lock of a type's leases.
func guardLock(t *Type) int64 { return JobLock("guard " + t.Tenant + "/" + t.Name) }

// heldStagesSQL finds the stages with tasks that are held, one index entry each, however
// many tasks there are.
const heldStagesSQL = `
WITH RECURSIVE s (stage) AS (
  (SELECT stage FROM {wait} WHERE until = 'infinity' AND reason <> 'flow_key' ORDER BY stage LIMIT 1)
  UNION ALL
  SELECT (SELECT w.stage FROM {wait} w WHERE w.until = 'infinity' AND w.reason <> 'flow_key' AND w.stage > s.stage ORDER BY w.stage LIMIT 1)
  FROM s WHERE s.stage IS NOT NULL)
SELECT stage FROM s WHERE stage IS NOT NULL`

// takeCandidates takes token rows: of each stage that there is room for those that were
// held, and what is due in ready. looked is how many of the latter there were, and last
// their greatest order_time.
func takeCandidates(ctx context.Context, conn *tenantConn, t *Type, from int, now time.Time, n int, scan *scan, stages []string, admission Admission) (found []candidate, looked int, last time.Time, err error) {
	b := &pgx.Batch{}
	collect := func(rows pgx.Rows) error {
		c := candidate{}
		c.ID.Type = t.Name
		_, err := pgx.ForEachRow(rows, []any{&c.ID.Number, &c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.key}, func() error {
			one := c
			one.Stage, one.Attempt = t.Place(c.Stage, c.Attempt)
			if t.Flow == nil {
				one.key = ""
			}
			found = append(found, one)
			return nil
		})
		return err
	}
	for _, stage := range stages {
		place, _ := t.Place(stage, 1)
		if room := min(n, admission.Room(place)); room > 0 {
			b.Queue(t.tables.at(0, takeHeldSQL), stage, room).Query(collect)
		}
	}
	b.Queue(t.tables.at(from, takeKeyedReadySQL), now, n, bound(scan.from)).Query(func(rows pgx.Rows) error {
		before := len(found)
		err := collect(rows)
		looked = len(found) - before
		for _, c := range found[before:] {
			if c.OrderTime.After(last) {
				last = c.OrderTime
			}
		}
		return err
	})
	err = conn.Send(ctx, b)
	scan.taken()
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(a.OrderTime.Compare(b.OrderTime), cmp.Compare(a.ID.Number, b.ID.Number))
	})
	return found, looked, last, err
}

// takeHeldSQL takes the first of the tasks of a stage that are held.
const takeHeldSQL = `
WITH c AS MATERIALIZED (
  SELECT ctid AS t FROM {wait}
  WHERE stage = $1 AND until = 'infinity' AND reason <> 'flow_key'
  ORDER BY order_time, id
  LIMIT $2
  FOR UPDATE SKIP LOCKED)
DELETE FROM {wait} w USING c WHERE w.ctid = c.t
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, '')`

// takeKeyedReadySQL is takeReadySQL with the flow keys.
const takeKeyedReadySQL = takeReadySQL + `, coalesce(r.key, '')`

// judge says of each candidate what keeps it, if anything does; of n at most, nothing.
// It returns the flow keys with tasks that are held and whose turn it may be.
func judge(ctx context.Context, conn *tenantConn, t *Type, found []candidate, admission Admission, n int) (again []string, err error) {
	turns, err := readTurns(ctx, conn, t, found)
	if err != nil {
		return nil, err
	}
	for i := range found {
		c := &found[i]
		if n == 0 { // those that were held came on top
			c.back = true
			continue
		}
		turn := turns[c.key]
		if c.key != "" && !turn.has(c) {
			c.held = asyncflow.WaitFlow
			continue
		}
		if c.Endpoint, c.held = admission.Admit(c.Stage); c.held != "" {
			continue
		}
		if c.key != "" && t.rated(c) && !admission.AdmitKey(c.key) {
			c.held, c.Endpoint = asyncflow.WaitFlow, ""
			continue
		}
		if c.key != "" {
			turn.take()
		}
		n--
	}
	for key, turn := range turns {
		if turn.passed {
			again = append(again, key)
		}
	}
	return again, nil
}

// rated tells whether the rate of a flow key is about a task. In order it is about those
// that begin: one that has begun keeps all others waiting.
func (t *Type) rated(c *candidate) bool {
	return !t.Flow.Rate.IsZero() && !(t.Flow.Ordered && t.Started(c.Stage, c.Attempt))
}

// queueJudged writes the leases of those candidates that nothing keeps, and files the
// others under what does. back is the least order_time of those that go back into ready.
func (s *Store) queueJudged(b *pgx.Batch, t *Type, found []candidate, now time.Time) (leases []asyncflow.Lease, back time.Time) {
	var keys []*string
	held := &tokens{}
	for _, c := range found {
		if c.held == "" && !c.back {
			leases, keys = append(leases, c.Lease), append(keys, orNull(c.key))
			continue
		}
		v := asyncflow.ParkFor(c.Lease, c.held)
		if c.back {
			v.Kind = asyncflow.Return
		}
		held.add(c.ID.Number, c.Seq, c.key, v, now)
	}
	held.queue(b, t)
	if len(leases) == 0 {
		return nil, held.earliest
	}
	hold(leases, t, now)
	byID := make(map[int64]*asyncflow.Lease, len(leases))
	for i := range leases {
		byID[leases[i].ID.Number] = &leases[i]
	}
	queuePayloads(b, t, leases, byID)
	s.queueGuardedLeases(b, t, leases, keys, now)
	return leases, held.earliest
}

func (s *Store) queueGuardedLeases(b *pgx.Batch, t *Type, leases []asyncflow.Lease, keys []*string, now time.Time) {
	c := leaseColumns(leases)
	endpoints := make([]*string, len(leases))
	for i, l := range leases {
		endpoints[i] = orNull(l.Endpoint)
	}
	b.Queue(t.tables.at(0, insertGuardedLeaseSQL), c.ids, c.seqs, c.stages, c.attempts, c.untils, s.cfg.Node, now, keys, endpoints)
}

const insertGuardedLeaseSQL = `
INSERT INTO {lease} (id, seq, stage, attempt, until, node, leased_at, key, endpoint)
SELECT u.id, u.seq, u.stage, u.attempt, u.until, $6, $7, u.key, u.endpoint
FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::smallint[], $5::timestamptz[], $8::text[], $9::uuid[])
  AS u (id, seq, stage, attempt, until, key, endpoint)`
