package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Tasks of a stage with mode claim are in wait, for WaitClaimer, and never in ready: so pushes
// don't see them, and a claim reads nothing but the tasks of its stage. Tasks that were submitted
// by SQL, or were in line when the stage got its mode, come there by a dispatcher.

// ClaimAsk asks for tasks of a stage.
type ClaimAsk struct {
	Claimer string
	N       int // the most tasks, 1 to asyncflow.MaxClaims
	// Held are the numbers of the tasks that the claimer knows to have: it doesn't get them again.
	Held []int64
	// Again reports whether the claimer may have open claims that it doesn't know of: it has just
	// asked, so the answer to an earlier call may have been lost.
	Again bool

	// Leases is the result: open claims, or new ones.
	Leases []asyncflow.Lease
	New    bool // Leases are new claims
	// Opens is the result, too: when the window of the claimer has room for another task, if it has
	// none now; zero: it has some, or there is no window.
	Opens time.Time
}

// LeaseForClaims leases tasks of a stage to claimers, in the order of the asks, which must be for
// different claimers; most new claims in all. A claimer that may not know of its open claims gets
// those, under the same seq, and no others. bytes bounds about the contexts that are read: tasks
// whose context was left out have none, and should be given back. next is when the next task of the
// stage is due, as far as can be seen; zero: there is none.
//
// It is one transaction in two round trips. If the answer to its COMMIT is lost, the claimers get
// their tasks when they ask again.
func (s *Store) LeaseForClaims(
	ctx context.Context, t *Type, stage string, asks []*ClaimAsk, most, bytes int,
) (next time.Time, err error) {
	if err = s.sure(ctx, t.Tenant); err == nil {
		err = s.following(ctx, t, func(now *Type) error {
			t = now
			next, err = s.tryClaim(ctx, t, stage, asks, most, bytes)
			return err
		})
	}
	if err != nil {
		for _, a := range asks {
			a.Leases = nil // they were rolled back, and others may have them by now
		}
		return time.Time{}, wrap(err, "LeaseForClaims(%q, %q, %q)", t.Tenant, t.Name, stage)
	}
	var ends time.Time // of the claims of which nothing is heard
	for _, a := range asks {
		s.announceTaken(t, a.Leases)
		for _, l := range a.Leases {
			if t.Unseen(l) {
				ends = l.Until
			}
		}
	}
	s.Wakeups.Announce(t.Key(), ends)
	return next, nil
}

// claiming is one transaction of LeaseForClaims.
type claiming struct {
	t     *Type
	stage string
	asks  []*ClaimAsk
	most  int // new claims
	now   time.Time
	until time.Time // of new claims

	window *asyncflow.Window
	shown  map[string]shown // by claimer; nil: there is no window

	open  map[string][]asyncflow.Lease // by claimer
	found []candidate                  // taken from wait
	again []asyncflow.Lease            // open claims that are handed out again
	taken []asyncflow.Lease            // new ones
	back  []candidate                  // taken too many
}

func (s *Store) tryClaim(
	ctx context.Context, t *Type, stage string, asks []*ClaimAsk, most, bytes int,
) (next time.Time, err error) {
	at := t.StageIndex(stage)
	if at < 0 { // it was removed meanwhile
		return next, nil
	}
	conn, err := s.hot(t.Tenant).Acquire(ctx)
	if err != nil {
		return next, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	now := s.Clock.Now()
	c := &claiming{t: t, stage: stage, asks: asks, most: most, now: now,
		until: now.Add(t.FirstClaimOf(stage)), open: map[string][]asyncflow.Lease{}}
	b := &pgx.Batch{}
	if c.window = t.Stages[at].Window; c.window == nil {
		b.Queue("BEGIN")
	} else if err := c.lockWindows(ctx, conn, *c.window); err != nil {
		return next, err
	}
	c.most = min(c.most, c.room())
	c.queueOpen(b)
	c.queueTake(b)
	if err := conn.Send(ctx, b); err != nil {
		return next, err
	}
	c.share()
	b = &pgx.Batch{}
	c.queueWrites(b, s.cfg.Node, bytes)
	if len(c.taken) < max(c.most, 1) || len(c.back) > 0 {
		c.queueHead(b, &next)
	} else {
		next = now
	}
	b.Queue("COMMIT")
	if err := conn.Send(ctx, b); err != nil {
		return next, s.doubt(err)
	}
	c.answer()
	return next, nil
}

// openClaimsSQL reads the claims of some claimers that haven't run out. It has no order: with one,
// the planner walks over all leases of the type in that order.
const openClaimsSQL = `
SELECT id, seq, stage, attempt, leased_at, until, claimer FROM {lease}
WHERE type = $1 AND claimer = ANY ($2) AND stage = ANY ($3) AND until > $4`

func (c *claiming) queueOpen(b *pgx.Batch) {
	var claimers []string
	for _, a := range c.asks {
		claimers = append(claimers, a.Claimer)
	}
	b.Queue(c.t.at(0, openClaimsSQL), c.t.number, claimers, c.t.NamesOf(c.stage), c.now).
		Query(func(rows pgx.Rows) error {
			l := asyncflow.Lease{}
			l.ID.Type = c.t.Name
			_, err := pgx.ForEachRow(rows, []any{&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.LeasedAt,
				&l.Until, &l.Claimer}, func() error {
				c.open[l.Claimer] = append(c.open[l.Claimer], l)
				return nil
			})
			return err
		})
}

// takeForClaimsSQL takes the first due tasks of a stage.
const takeForClaimsSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {wait}
  WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
    AND order_time <= $3
  ORDER BY order_time, id
  LIMIT $4
  FOR UPDATE SKIP LOCKED))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time)`

func (c *claiming) queueTake(b *pgx.Batch) {
	for _, name := range c.t.NamesOf(c.stage) {
		b.Queue(c.t.at(0, takeForClaimsSQL), c.t.number, name, c.now, c.most).
			Query(func(rows pgx.Rows) error {
				one := candidate{}
				one.ID.Type = c.t.Name
				_, err := pgx.ForEachRow(rows, []any{&one.ID.Number, &one.Seq, &one.Stage, &one.Attempt,
					&one.OrderTime, &one.placed}, func() error {
					c.found = append(c.found, one)
					return nil
				})
				return err
			})
	}
}

// room returns how many new tasks the windows of the claimers allow, and sets when those open that
// have no room.
func (c *claiming) room() (sum int) {
	for _, a := range c.asks {
		n := 0
		n, a.Opens = c.roomOf(a)
		sum += min(a.N, n)
	}
	return sum
}

func (c *claiming) roomOf(a *ClaimAsk) (int, time.Time) {
	if c.window == nil {
		return asyncflow.MaxClaims, time.Time{}
	}
	return c.shown[a.Claimer].room(*c.window)
}

// mayShow reports whether an open claim may be shown to its claimer again.
func (c *claiming) mayShow(a *ClaimAsk, l asyncflow.Lease) bool {
	if c.window == nil {
		return true
	}
	all := c.shown[a.Claimer]
	if _, known := all[l.ID.Number]; !known && len(all) >= c.window.Tasks {
		return false
	}
	all[l.ID.Number] = c.now
	return true
}

// share hands what was found out to the asks.
func (c *claiming) share() {
	slices.SortFunc(c.found, func(a, b candidate) int { return leasesInOrder(a.Lease, b.Lease) })
	for _, a := range c.asks {
		a.Leases, a.New = nil, false
		open := c.open[a.Claimer]
		slices.SortFunc(open, byNumber)
		if a.Again {
			for _, l := range open {
				if len(a.Leases) < a.N && !slices.Contains(a.Held, l.ID.Number) &&
					c.mayShow(a, l) {
					a.Leases = append(a.Leases, c.begun(l))
				}
			}
		}
		if len(a.Leases) > 0 {
			c.again = append(c.again, a.Leases...)
			continue
		}
		a.New = true
		room, _ := c.roomOf(a)
		n := min(a.N, room, asyncflow.MaxOpenClaims-len(open), len(c.found))
		for _, one := range c.found[:max(0, n)] {
			l := one.Lease
			l.Stage, l.Attempt = c.t.Place(l.Stage, l.Attempt)
			l.Claimer, l.LeasedAt, l.Until = a.Claimer, c.now, c.until
			a.Leases = append(a.Leases, l)
		}
		c.taken = append(c.taken, a.Leases...)
		c.found = c.found[max(0, n):]
	}
	c.back = c.found
}

func byNumber(a, b asyncflow.Lease) int { return cmp.Compare(a.ID.Number, b.ID.Number) }

// begun returns an open claim as it is handed out again: if nothing was heard of it, it begins anew.
func (c *claiming) begun(l asyncflow.Lease) asyncflow.Lease {
	if c.t.Unseen(l) {
		l.LeasedAt, l.Until = c.now, c.now.Add(c.t.FirstClaimOf(l.Stage))
	}
	return l
}

// againSQL moves the begin and the end of claims that are handed out again, and that still stand.
const againSQL = `
UPDATE {lease} l SET leased_at = u.leased_at, until = u.until
FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::timestamptz[])
  AS u (id, seq, leased_at, until)
WHERE l.type = ANY (ARRAY[$5::int]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
RETURNING l.id`

// queueWrites adds the rows of the claims to a batch, and reads what to send.
func (c *claiming) queueWrites(b *pgx.Batch, node string, bytes int) {
	all := slices.Concat(c.taken, c.again)
	byID := make(map[int64]*asyncflow.Lease, len(all))
	for _, a := range c.asks {
		for i := range a.Leases {
			byID[a.Leases[i].ID.Number] = &a.Leases[i]
		}
	}
	if len(all) > 0 {
		queueBoundedPayloads(b, c.t, all, byID, bytes)
	}
	c.queueLeases(b, node)
	b.Queue(c.t.at(0, askedSQL), c.t.number, c.stage, c.now, c.now.Add(-askedEvery))
	if c.window != nil {
		c.queueWindows(b, *c.window)
	}
	c.queueAgain(b, byID)
	if len(c.back) > 0 {
		ts := &tokens{}
		for _, one := range c.back {
			v := asyncflow.ParkFor(one.Lease, asyncflow.WaitClaimer)
			ts.add(one.ID.Number, one.Seq, "", v, one.placed, c.now)
		}
		ts.queue(b, c.t)
	}
}

// askedEvery is how often it is written down that somebody asks for tasks of a stage.
const askedEvery = 15 * time.Second

// askedSQL writes down when somebody asked last, unless that was a moment ago.
const askedSQL = `
INSERT INTO {claim_stages} AS s (type, stage, asked_at)
SELECT $1::int, $2::text, $3::timestamptz WHERE NOT EXISTS (
  SELECT FROM {claim_stages} WHERE type = $1::int AND stage = $2::text AND asked_at > $4)
ON CONFLICT (type, stage) DO UPDATE SET asked_at = excluded.asked_at
WHERE s.asked_at < excluded.asked_at`

// AskedAt returns when somebody asked last for tasks of each stage of a tenant, to about a quarter of
// a minute. A stage has none if nobody ever has.
func (s *Store) AskedAt(ctx context.Context, tenant string) (map[StageKey]time.Time, error) {
	schema := quote(schemaOf(tenant))
	rows, err := s.of(tenant).Query(ctx, `SELECT t.name, c.stage, c.asked_at
		FROM `+schema+`.claim_stages c JOIN `+schema+`.task_types t ON t.number = c.type`)
	if err != nil {
		return nil, wrap(err, "AskedAt(%q)", tenant)
	}
	all := map[StageKey]time.Time{}
	var k StageKey
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&k.Type, &k.Stage, &at}, func() error {
		all[k] = at
		return nil
	})
	return all, wrap(err, "AskedAt(%q)", tenant)
}

// StageKey names a stage of a tenant's types.
type StageKey struct{ Type, Stage string }

func (c *claiming) queueLeases(b *pgx.Batch, node string) {
	var ids []int64
	var seqs, attempts []int16
	var claimers []string
	for _, l := range c.taken {
		ids, seqs = append(ids, l.ID.Number), append(seqs, int16(l.Seq))
		attempts, claimers = append(attempts, int16(l.Attempt)), append(claimers, l.Claimer)
	}
	if len(ids) > 0 {
		b.Queue(c.t.at(0, insertClaimSQL), ids, seqs, attempts, claimers, c.stage, c.until, node, c.now,
			c.t.number)
	}
}

// queueAgain begins open claims anew. Those that have ended meanwhile lose their place in byID.
func (c *claiming) queueAgain(b *pgx.Batch, byID map[int64]*asyncflow.Lease) {
	if len(c.again) == 0 {
		return
	}
	slices.SortFunc(c.again, byNumber)
	var ids []int64
	var seqs []int16
	var begins, untils []time.Time
	for _, l := range c.again {
		ids, seqs = append(ids, l.ID.Number), append(seqs, int16(l.Seq))
		begins, untils = append(begins, l.LeasedAt), append(untils, l.Until)
	}
	b.Queue(c.t.at(0, againSQL), ids, seqs, begins, untils, c.t.number).Query(func(rows pgx.Rows) error {
		standing := map[int64]bool{}
		if err := collectIDs(rows, standing); err != nil {
			return err
		}
		for _, l := range c.again {
			if !standing[l.ID.Number] {
				byID[l.ID.Number].Seq = 0
			}
		}
		return nil
	})
}

// answer drops the open claims that ended while they were handed out again.
func (c *claiming) answer() {
	for _, a := range c.asks {
		a.Leases = slices.DeleteFunc(a.Leases, func(l asyncflow.Lease) bool { return l.Seq == 0 })
	}
}

// claimHeadSQL reads when the next task of a stage is due.
const claimHeadSQL = `
SELECT order_time FROM {wait}
WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
ORDER BY order_time, id LIMIT 1`

func (c *claiming) queueHead(b *pgx.Batch, next *time.Time) {
	for _, name := range c.t.NamesOf(c.stage) {
		b.Queue(c.t.at(0, claimHeadSQL), c.t.number, name).QueryRow(func(row pgx.Row) error {
			var order time.Time
			switch err := row.Scan(&order); {
			case err == pgx.ErrNoRows:
				return nil
			case err != nil:
				return err
			}
			if next.IsZero() || order.Before(*next) {
				*next = order
			}
			return nil
		})
	}
}

// queueBoundedPayloads is queuePayloads, but it reads no more contexts of a roll once they have some
// bytes.
func queueBoundedPayloads(
	b *pgx.Batch, t *Type, leases []asyncflow.Lease, byID map[int64]*asyncflow.Lease, bytes int,
) {
	for p, ids := range payloadParts(leases) {
		sql := payloadsSQL
		if p.later {
			sql = laterPayloadsSQL
		}
		sql = `SELECT id, options, CASE WHEN upto - size < $3 THEN context END FROM (
			SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS upto FROM (
			SELECT *, octet_length(context) AS size FROM (` + sql + `) p (id, options, context)) q) r`
		b.Queue(t.at(p.position, sql), ids, t.number, bytes).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := scanPayload(rows, byID); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
}

// claimed reports whether workers ask for the tasks of a stage, which may be mapped to another.
func (t *Type) claimed(stage string) bool {
	place, _ := t.Place(stage, 1)
	return t.Claims(place)
}

// inLineForClaims reports whether a task in line at a stage waits for a claimer. Tasks that fan
// out there go to a dispatcher.
func (t *Type) inLineForClaims(stage string) bool {
	for i := range t.Stages {
		if t.Stages[i].Mode == asyncflow.ModeClaim {
			place, _ := t.Place(stage, 1)
			i = t.StageIndex(place)
			return i >= 0 && t.Stages[i].Mode == asyncflow.ModeClaim && t.Stages[i].FanOut == nil
		}
	}
	return false
}

// forClaims returns the row of a task in line that waits for a claimer.
func (r readyRow) forClaims(t *Type) waitRow {
	return waitRow{typed{t.number, r.spot}, r.order, r.id, asyncflow.WaitClaimer, r.key, forever, r.since}
}
