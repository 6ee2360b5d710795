package claims

import (
	"context"
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
// different claimers, and makes at most `most` new claims. A claimer that may not know of its open
// claims gets these again, under the same seq, and no new ones. All contexts together have no more
// than bytes, but for the first one: tasks beyond that are not leased. Children of paused and ended
// tasks aren't either. next is when the next task of the stage is due, as far as can be seen; zero:
// there is none.
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
	bare  *place                       // in line: the first of them without the rules of its task

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
		return next, hot.NoteFailure(s.hot, t.Tenant, err)
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
	return c.copyRules(ctx, conn)
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

// fullPause is how long a claimer waits that has as many open claims as it may have.
const fullPause = time.Second
