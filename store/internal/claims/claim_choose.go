package claims

import (
	"cmp"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

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

// handOut hands what was found out to the asks.
func (c *claiming) handOut() {
	slices.SortFunc(c.found,
		func(a, b hot.Candidate) int { return hot.LeasesInOrder(a.Lease, b.Lease) })
	if c.window.Picks() {
		slices.SortStableFunc(c.found, c.inPlannedOrder)
	}
	for _, a := range c.asks {
		a.clear()
		open := c.openOf(a)
		slices.SortFunc(open, byNumber)
		c.prolongHeld(a, open)
		if c.giveAgain(a, open); len(a.Leases) == 0 {
			c.giveNew(a, asyncflow.MaxOpenClaims-len(open))
		}
	}
	for _, one := range c.found {
		c.putBack(one, asyncflow.ParkFor(one.Lease, asyncflow.WaitClaimer))
	}
}

// clear forgets the results of an earlier try.
func (a *ClaimAsk) clear() {
	a.Leases = nil
	a.New = false
	a.closed = false
	a.stopped = nil
	a.expired = nil
	a.missed = false
	a.Further = false
	a.Rest = time.Time{}
}

// giveAgain gives an ask the open claims that its claimer may not know of.
func (c *claiming) giveAgain(a *ClaimAsk, open []asyncflow.Lease) {
	if !a.Again {
		return
	}
	for _, l := range open {
		if len(a.Leases) < a.N && !slices.Contains(a.Held, l.ID.Number) && c.mayShow(a, l) {
			a.Leases = append(a.Leases, c.begun(l))
		}
	}
}

// giveNew gives an ask the first of the found tasks that it may have, up to most.
func (c *claiming) giveNew(a *ClaimAsk, most int) {
	a.New = true
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
	l.Stage, l.Attempt = c.t.Mapped(l.Stage, l.Attempt)
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
				c.noteBare(one)
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
