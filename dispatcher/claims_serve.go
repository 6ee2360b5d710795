package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func (h *claims) start(line *claimLine) {
	if !line.running {
		line.running = true
		go h.serve(line)
	}
}

// serve looks for tasks as long as there are calls for which some may be due.
func (h *claims) serve(line *claimLine) {
	for {
		h.slots <- struct{}{} // until then a call may still leave
		calls, most := h.take(line)
		if len(calls) == 0 {
			<-h.slots
			return
		}
		r, next := h.claim(line, calls, most)
		<-h.slots
		h.answer(line, calls, r, next)
	}
}

// take takes the calls for the next transaction, of different claimers, and returns how many tasks
// it may lease. Without any call, the line is no longer served.
func (h *claims) take(line *claimLine) (calls []*claimCall, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most = min(asyncflow.MaxClaims, max(1, int(claimBytes/line.mean)))
	claimers := map[string]bool{}
	left, n, now := false, 0, h.c.store.Clock.Now()
	for _, call := range line.calls {
		if call.Opens.After(now) {
			h.arm(line, call.Opens)
			continue
		}
		if call.looked && !line.due {
			continue
		}
		if len(calls) == claimCalls || n >= most || claimers[call.Claimer] {
			left = true
			continue
		}
		call.taken, call.Again = true, !call.looked
		claimers[call.Claimer] = true
		n += call.N
		calls = append(calls, call)
	}
	line.due = line.due && left
	if len(calls) == 0 {
		line.running = false
		h.tidy(line)
		return nil, 0
	}
	line.underWay = make(chan struct{})
	return calls, most
}

// claim is one transaction. A call whose client is gone gets nothing.
func (h *claims) claim(line *claimLine, calls []*claimCall, most int) (
	r claimResult, next time.Time) {
	ctx, cancel := context.WithTimeout(h.c.writing, leaseTime)
	defer cancel()
	if r.t, r.err = h.typeOf(ctx, line.key, line.stage); r.err != nil || r.t.Paused() {
		return r, next
	}
	var asks []*store.ClaimAsk
	n := 0
	for _, call := range calls {
		if call.gone = call.alive != nil && !call.alive(); !call.gone {
			asks = append(asks, &call.ClaimAsk)
			n += call.N
		}
	}
	if len(asks) > 0 {
		n = min(n, most)
		h.looks.Add(1)
		next, r.err = h.c.store.LeaseForClaims(ctx, r.t, line.stage, asks, n, claimBytes)
		if r.err == nil {
			r.err = h.parkPaused(ctx, r.t, asks)
		}
	}
	for _, ask := range asks {
		n -= len(ask.Leases)
	}
	r.more = n <= 0
	return r, next
}

// parkPaused takes those of the new claims back that are children of a paused task: they came in
// line after the pause, such as retries.
func (h *claims) parkPaused(ctx context.Context, t *store.Type, asks []*store.ClaimAsk) error {
	var taken []asyncflow.Lease
	for _, ask := range asks {
		if ask.New {
			taken = append(taken, ask.Leases...)
		}
	}
	others, err := h.c.store.ParkPaused(ctx, t, taken)
	if err != nil || len(others) == len(taken) {
		return err
	}
	stay := map[asyncflow.TaskID]bool{}
	for _, l := range others {
		stay[l.ID] = true
	}
	for _, ask := range asks {
		if ask.New {
			ask.Leases = slices.DeleteFunc(ask.Leases, func(l asyncflow.Lease) bool { return !stay[l.ID] })
		}
	}
	return nil
}

// answer gives the calls of a transaction their results. Those that got nothing may wait on.
func (h *claims) answer(line *claimLine, calls []*claimCall, r claimResult, next time.Time) {
	now := h.c.store.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	close(line.underWay)
	line.underWay = nil
	held := store.IsHeld(r.err) // a table is locked
	if held {
		next = now.Add(lockedPause)
	}
	for _, call := range calls {
		line.learn(call.Leases)
		h.giveUnreadBack(line, call)
		call.taken = false
		switch {
		case call.gone:
			call.done <- claimResult{}
		case r.err != nil && !(held && call.waits), len(call.Leases) > 0, !call.waits:
			call.done <- r
		default:
			call.looked = call.looked || !held
			continue
		}
		line.calls = slices.DeleteFunc(line.calls, func(c *claimCall) bool { return c == call })
	}
	switch {
	case next.IsZero():
	case next.After(now):
		h.arm(line, next)
	case r.more:
		line.due = true
	default: // another node is about to take them
		h.arm(line, now.Add(contendedPause))
	}
}

// giveUnreadBack gives back the tasks whose contexts were left out, as there were too many bytes.
func (h *claims) giveUnreadBack(line *claimLine, call *claimCall) {
	var unread []asyncflow.Lease
	call.Leases = slices.DeleteFunc(call.Leases, func(l asyncflow.Lease) bool {
		if l.Context == nil {
			unread = append(unread, l)
		}
		return l.Context == nil
	})
	if len(unread) > 0 {
		h.c.ReleaseClaims(line.key.Tenant, unread, "the answer would have been too long")
	}
}

// learn updates the mean bytes of a context. It falls slowly, since it may rise again.
func (l *claimLine) learn(leases []asyncflow.Lease) {
	for _, one := range leases {
		if one.Context == nil { // it was left out
			continue
		}
		mean := float64(max(1, len(one.Context)))
		if l.mean > mean {
			mean = (15*l.mean + mean) / 16
		}
		l.mean = mean
	}
}
