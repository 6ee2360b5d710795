package claims

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Tasks of a stage with mode claim are in wait, for WaitClaimer, and never in ready: so pushes
// don't see them, and a claim reads nothing but the tasks of its stage. Tasks that were submitted
// by SQL, or were in line when the stage got its mode, come there by a dispatcher.

// ClaimAsk asks for tasks of a stage.
type ClaimAsk struct {
	Claimer string
	Subject string // of the caller's token; "": it has none
	Worker  string // the name that the worker gave; see asyncflow.WorkerName
	Named   bool   // the caller's token names the claimer: it has all open claims of that name
	N       int    // the most tasks, 1 to asyncflow.MaxClaims
	Labels  asyncflow.ClaimerLabels
	// Held are the numbers of the tasks that the claimer knows to have: it doesn't get them again.
	Held []int64
	// Again reports whether the claimer may have open claims that it doesn't know of: it has just
	// asked, so the answer to an earlier call may have been lost.
	Again bool

	// Leases is the result: open claims, or new ones.
	Leases []asyncflow.Lease
	New    bool // Leases are new claims
	// Opens is the result, too: when the window of the claimer allows another task, if it has
	// none now; zero: it has some, or there is no window.
	Opens time.Time
	// Further is the result: it got no task, and there is more of the line to look at.
	Further bool
	// Rest is the result: until when it should not look again, as it has gone through a long line
	// in vain; zero: it may at once.
	Rest time.Time

	closed  bool    // its window is used up, as far as it has just asked
	missed  bool    // the rules of a task that it would have got kept it from it
	stopped []int64 // children that it would have got; their parents are over or about to be
	expired []int64 // tasks that it would have got; their lifetime is over
}

// LeaseForClaims leases tasks of a stage to claimers, in the order of the asks, which must be for
// different claimers; most new claims in all. A claimer that may not know of its open claims gets
// these again, under the same seq, and no new ones. All contexts together have no more than bytes,
// but for the first one: tasks beyond that are not leased. Children of paused and ended tasks
// aren't either. next is when the next task of the stage is due, as far as can be seen; zero: there
// is none.
//
// It is one transaction in three round trips. If the answer to its COMMIT is lost, the claimers get
// their tasks when they ask again.
func (s *Claims) LeaseForClaims(
	ctx context.Context, t *config.Type, stage string, asks []*ClaimAsk, most, bytes int,
) (next time.Time, err error) {
	t, next, err = s.leaseForClaims(ctx, t, stage, asks, most, bytes)
	if err != nil {
		for _, a := range asks {
			a.Leases = nil // they were rolled back, and other claimers may have them now
		}
		return time.Time{}, postgres.Wrap(err, "LeaseForClaims(%q, %q, %q)", t.Tenant, t.Name,
			stage)
	}
	var ends time.Time // of claims if nothing is heard of them
	for _, a := range asks {
		if a.missed && len(a.Leases) == 0 {
			a.Further = true
		}
		_ = trees.CancelStopped(ctx, s.trees, t, a.stopped) // FollowUp cancels the rest
		_ = trees.ExpireSoon(ctx, s.trees, t, a.expired)    // the job expire does the rest
		hot.AnnounceTaken(s.hot, t, a.Leases)
		if a.New {
			now := s.core.Clock.Now()
			s.core.CountStarted(t.Key(), len(a.Leases), func(i int) (*asyncflow.Lease, time.Time) {
				return &a.Leases[i], now
			})
		}
		if a.closed && len(a.Leases) == 0 {
			s.core.Times.Count(catalog.TimesKey{TypeKey: t.Key(), Stage: stage},
				func(c *catalog.TimesCounts) { c.ClosedWindows++ })
		}
		for _, l := range a.Leases {
			if t.Unseen(l) {
				ends = l.Until
			}
		}
	}
	s.core.Wakeups.Announce(t.Key(), ends)
	return next, nil
}

// leaseForClaims is LeaseForClaims without what follows from it. It also returns the type as it was
// then.
func (s *Claims) leaseForClaims(
	ctx context.Context, t *config.Type, stage string, asks []*ClaimAsk, most, bytes int,
) (_ *config.Type, next time.Time, err error) {
	if err := hot.CheckCommits(ctx, s.hot, t.Tenant); err != nil {
		return t, next, err
	}
	err = s.core.FollowRolls(ctx, t, func(now *config.Type) error {
		t = now
		next, err = s.tryClaim(ctx, t, stage, asks, most, bytes)
		return err
	})
	return t, next, err
}

// claiming is one transaction of LeaseForClaims.
type claiming struct {
	path  *hot.Path
	t     *config.Type
	stage string
	asks  []*ClaimAsk
	most  int // new claims
	now   time.Time
	until time.Time // of new claims

	voters bool // the tasks are votes, and a claimer has one of each task's
	heard  bool // the stage is only listened to: no claimer is a voter
	window *asyncflow.Window
	shown  map[string]shown // by claimer; nil: there is no window
	locked *bool            // whether a lock was made for them; nil: they need none

	passes *passes       // of the line, which has tasks with rules; nil: none are known
	plans  []*plan       // nil: the first tasks are taken
	wanted map[int64]int // the planned tasks, and their order

	open  map[string][]asyncflow.Lease // by claimer
	found []hot.Candidate              // taken from wait
	votes map[records.VoteRow]bool     // which claimers can't have which votes
	byID  map[int64]hot.Candidate      // the part of found that is shared out
	again []asyncflow.Lease            // open claims that are handed out again
	named []asyncflow.Lease            // open claims with this call as their first sign of life
	taken []asyncflow.Lease            // new ones
	back  records.Tokens               // of tasks that were taken, and aren't handed out

	halted map[records.FanOutKey]bool // the parents of new claims that are stopped
}

func (s *Claims) tryClaim(
	ctx context.Context, t *config.Type, stage string, asks []*ClaimAsk, most, bytes int,
) (next time.Time, err error) {
	at := t.StageIndex(stage)
	if at < 0 { // it was removed meanwhile
		return next, nil
	}
	conn, err := s.core.HotDB(t.Tenant).Acquire(ctx)
	if err != nil {
		return next, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	now := s.core.Clock.Now()
	c := &claiming{path: s.hot, t: t, stage: stage, asks: asks, most: most, now: now,
		until: now.Add(t.FirstClaimOf(stage)), open: map[string][]asyncflow.Lease{},
		byID: map[int64]hot.Candidate{}, voters: t.Stages[at].VotesAreNamed(),
		window: t.Stages[at].Window, heard: t.Stages[at].Listened}
	line := catalog.TimesKey{TypeKey: t.Key(), Stage: stage}
	c.passes = s.ruled.find(line)
	if err := c.take(ctx, conn); err != nil {
		return next, err
	}
	if err := c.choose(ctx, conn, bytes); err != nil {
		return next, err
	}
	if c.onlyLocked() {
		if err := c.rollBack(ctx, conn); err != nil {
			return next, err
		}
	}
	if next, err = c.commit(ctx, conn, s.core.Config.Node); err != nil {
		return next, hot.NoteFailure(s.hot, err)
	}
	c.endPlans(&s.ruled, line)
	if c.back.Readied() > 0 {
		s.core.Wakeups.Announce(t.Key(), now)
	}
	return next, nil
}

// take begins the transaction, reads the open claims of the claimers, and takes the first tasks
// from wait.
func (c *claiming) take(ctx context.Context, conn *postgres.TenantConn) error {
	b := &pgx.Batch{}
	if c.window == nil && !c.voters {
		b.Queue("BEGIN")
	} else if err := c.lockClaimers(ctx, conn); err != nil {
		return err
	}
	c.most = min(c.most, c.leftInWindows())
	c.queueOpen(b)
	if c.passes != nil || c.window.Picks() {
		if err := conn.Send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		if err := c.readPlans(ctx, conn); err != nil {
			return err
		}
		c.queueTakePlanned(b)
	} else if c.voters {
		c.queueTakeVotes(b)
	} else {
		c.queueTake(b)
	}
	c.queueTakeShown(b)
	return conn.Send(ctx, b)
}

// choose shares out what was taken, and reads what the claimers get with it.
func (c *claiming) choose(ctx context.Context, conn *postgres.TenantConn, bytes int) error {
	if err := c.readVotes(ctx, conn); err != nil {
		return err
	}
	c.handOut()
	if err := c.readPayloads(ctx, conn, bytes); err != nil {
		return err
	}
	if err := c.readBegun(ctx, conn); err != nil {
		return err
	}
	paused, busy, err := c.readPauses(ctx, conn)
	if err != nil {
		return err
	}
	c.sift(bytes, paused, busy)
	return nil
}

// rollBack ends a transaction that has only locked claimers; commit begins another one.
func (c *claiming) rollBack(ctx context.Context, conn *postgres.TenantConn) error {
	b := &pgx.Batch{}
	b.Queue("ROLLBACK")
	return conn.Send(ctx, b)
}

// commit writes the claims, and returns when the next task of the stage is due.
func (c *claiming) commit(
	ctx context.Context, conn *postgres.TenantConn, node string,
) (next time.Time, err error) {
	b := &pgx.Batch{}
	if c.onlyLocked() {
		b.Queue("BEGIN")
	}
	c.queueWrites(b, node)
	if len(c.taken) < max(c.most, 1) {
		c.queueHead(b, &next)
	} else {
		next = c.now
	}
	b.Queue("COMMIT")
	err = conn.Send(ctx, b)
	return next, err
}

// onlyLocked reports whether the transaction has locked claimers and has nothing to write: see
// lockClaimers.
func (c *claiming) onlyLocked() bool {
	return c.locked != nil && !*c.locked && len(c.taken)+len(c.again) == 0 && c.back.Empty()
}

// leftInWindows returns how many new tasks the windows of the claimers allow. Where a window allows
// none, it sets when the window opens.
func (c *claiming) leftInWindows() (sum int) {
	for _, a := range c.asks {
		n := 0
		n, a.Opens = c.leftInWindow(a)
		sum += min(a.N, n)
	}
	return sum
}

func (c *claiming) leftInWindow(a *ClaimAsk) (int, time.Time) {
	if c.window == nil {
		return asyncflow.MaxClaims, time.Time{}
	}
	return c.shown[a.Claimer].left(*c.window)
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

// fullPause is how long a claimer waits that has as many open claims as it may have.
const fullPause = time.Second

// handOut hands what was found out to the asks.
func (c *claiming) handOut() {
	slices.SortFunc(c.found,
		func(a, b hot.Candidate) int { return hot.LeasesInOrder(a.Lease, b.Lease) })
	if c.window.Picks() {
		slices.SortStableFunc(c.found, c.inPlannedOrder)
	}
	for _, a := range c.asks {
		a.Leases = nil
		a.New = false
		a.closed = false
		a.stopped = nil
		a.expired = nil
		a.missed = false
		a.Further = false
		a.Rest = time.Time{}
		open := c.openOf(a)
		slices.SortFunc(open, byNumber)
		c.prolongHeld(a, open)
		if a.Again {
			for _, l := range open {
				if len(a.Leases) < a.N && !slices.Contains(a.Held, l.ID.Number) &&
					c.mayShow(a, l) {
					a.Leases = append(a.Leases, c.begun(l))
				}
			}
		}
		if len(a.Leases) > 0 {
			continue
		}
		a.New = true
		most := asyncflow.MaxOpenClaims - len(open)
		if most <= 0 {
			a.Opens = later(a.Opens, c.now.Add(fullPause))
		}
		left, _ := c.leftInWindow(a)
		a.closed = a.Again && left <= 0
		n := min(a.N, most)
		c.found = slices.DeleteFunc(c.found, func(one hot.Candidate) bool {
			vote := records.VoteRow{Number: c.t.Number(), Claimer: a.Claimer, Key: one.LineKey}
			_, again := c.shown[a.Claimer][one.ID.Number]
			if len(a.Leases) >= n || left <= 0 && !again || c.votes[vote] {
				return false
			}
			if !one.Options.Claim.Allow(a.Claimer, a.Subject, a.Labels) {
				a.missed = a.missed || c.plans == nil
				return false
			}
			if !again {
				left--
			}
			c.votes[vote] = !c.heard && one.LineKey != ""
			c.give(a, one)
			return true
		})
	}
	for _, one := range c.found {
		c.putBack(one, asyncflow.ParkFor(one.Lease, asyncflow.WaitClaimer))
	}
}

// openOf returns the open claims that are the caller's: anybody may use a name to which no token is
// bound, but what was handed to one token is not shown to another.
func (c *claiming) openOf(a *ClaimAsk) (own []asyncflow.Lease) {
	for _, l := range c.open[a.Claimer] {
		if a.Named || l.Subject == a.Subject {
			own = append(own, l)
		}
	}
	return own
}

// prolongHeld prolongs the open claims that the claimer says it has: so they have arrived.
func (c *claiming) prolongHeld(a *ClaimAsk, open []asyncflow.Lease) {
	for _, l := range open {
		if slices.Contains(a.Held, l.ID.Number) && c.t.Unseen(l) {
			l.Until = c.now.Add(c.t.ProcessingTime(l.Stage))
			c.named = append(c.named, l)
		}
	}
}

// give gives an ask a new claim.
func (c *claiming) give(a *ClaimAsk, one hot.Candidate) {
	l := one.Lease
	l.Options = asyncflow.Options{} // they are read later
	l.Stage, l.Attempt = c.t.Place(l.Stage, l.Attempt)
	l.Claimer = a.Claimer
	l.Subject = a.Subject
	l.Worker = a.Worker
	l.LeasedAt = c.now
	l.DueAt = one.Placed
	l.Until = c.until
	a.Leases = append(a.Leases, l)
	c.byID[l.ID.Number] = one
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// putBack gives a task that was taken its next place. Other claimers never saw it away.
func (c *claiming) putBack(one hot.Candidate, v asyncflow.Verdict) {
	c.back.Add(one.ID.Number, one.Seq, one.LineKey, v, one.Placed, c.now)
}

// sift drops what can't be handed out now: contexts that were left out or are too many bytes, and
// children of paused tasks. Tasks that came in line before their stage got a fan-out go to a
// dispatcher.
func (c *claiming) sift(bytes int, paused, busy map[records.FanOutKey]bool) {
	fansOut := c.t.Stages[c.t.StageIndex(c.stage)].Spreads() != nil
	var kept int // bytes
	for _, a := range c.asks {
		a.Leases = slices.DeleteFunc(a.Leases, func(l asyncflow.Lease) bool {
			one, where := c.byID[l.ID.Number], asyncflow.ParkFor(c.byID[l.ID.Number].Lease,
				asyncflow.WaitClaimer)
			isPaused := trees.AnyOf(c.t, &l, paused)
			switch {
			case a.New && trees.AnyOf(c.t, &l, c.halted):
				a.stopped = append(a.stopped, l.ID.Number)
			case a.New && c.overdue(&l):
				a.expired = append(a.expired, l.ID.Number)
			case l.Context == nil, kept > 0 && kept+l.Size() > bytes, a.New && !isPaused &&
				trees.AnyOf(c.t, &l, busy):
			case a.New && !l.Options.Claim.Allow(a.Claimer, a.Subject, a.Labels):
				// Its row in line was without them.
				where.Claim = l.Options.Claim
				a.missed = true
			case a.New && isPaused:
				where.Reason = asyncflow.WaitParent
			case a.New && fansOut && l.Options.Child == nil:
				where.Kind = asyncflow.Return
				where.Reason = ""
			default:
				kept += l.Size()
				return false
			}
			if a.New {
				c.putBack(one, where)
			}
			return true
		})
		if a.New {
			c.taken = append(c.taken, a.Leases...)
		} else {
			c.again = append(c.again, a.Leases...)
		}
	}
}

func byNumber(a, b asyncflow.Lease) int { return cmp.Compare(a.ID.Number, b.ID.Number) }

// begun returns an open claim as it is handed out again: if nothing was heard of it, it begins
// anew.
func (c *claiming) begun(l asyncflow.Lease) asyncflow.Lease {
	if c.t.Unseen(l) {
		l.LeasedAt = c.now
		l.Until = c.now.Add(c.t.FirstClaimOf(l.Stage))
	}
	return l
}
