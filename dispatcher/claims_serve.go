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
		prompt := h.prompt(line)
		h.slots.Acquire(line.key.Tenant, prompt) // until then a call may still leave
		calls, most := h.nextCalls(line)
		if len(calls) == 0 {
			h.slots.Release(prompt)
			return
		}
		r, next := h.claim(line, calls, most)
		h.slots.Release(prompt)
		h.answer(line, calls, r, next)
	}
}

// prompt reports whether a call in the line doesn't wait for tasks.
func (h *claims) prompt(line *claimLine) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(line.calls, func(c *claimCall) bool { return !c.waits })
}

// nextCalls takes the calls for the next transaction, of different claimers, and returns how many
// tasks it may lease. Without any call, the line is no longer served.
func (h *claims) nextCalls(line *claimLine) (calls []*claimCall, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most = min(asyncflow.MaxClaims, max(1, int(claimBytes/h.meanOf(line))))
	claimers := map[string]bool{}
	left := false
	n := 0
	now := h.c.store.Clock.Now()
	for _, call := range line.calls {
		if line.reopen {
			call.Opens = time.Time{}
		}
		if at := line.wakes(call); at.After(now) {
			h.arm(line, at)
			continue
		}
		if call.looked && !line.due && !call.Further {
			continue
		}
		if len(calls) == claimCalls || n >= most || claimers[call.Claimer] {
			left = true
			continue
		}
		call.taken = true
		call.Again = !call.looked
		call.stirred = call.stirred || call.Further && line.due
		call.Further = false
		claimers[call.Claimer] = true
		n += call.N
		calls = append(calls, call)
	}
	line.due = line.due && left
	line.reopen = false
	if len(calls) == 0 {
		line.running = false
		h.tidy(line)
		return nil, 0
	}
	line.underWay = make(chan struct{})
	return calls, most
}

// claim is one transaction. A call without a client any more gets nothing.
func (h *claims) claim(
	line *claimLine, calls []*claimCall, most int,
) (r claimResult, next time.Time) {
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
		if r.err == nil && r.t.Delivers(line.stage) != nil {
			r.err = h.readPasts(ctx, r.t, asks)
		}
	}
	for _, ask := range asks {
		n -= len(ask.Leases)
	}
	r.more = n <= 0
	return r, next
}

// answer gives the calls of a transaction their results. Those that got nothing may wait on.
func (h *claims) answer(line *claimLine, calls []*claimCall, r claimResult, next time.Time) {
	now := h.c.store.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	close(line.underWay)
	line.underWay = nil
	held := h.c.store.IsMoving(r.err)
	if held {
		next = now.Add(lockedPause)
	}
	openWindow := false // of a call that goes on waiting
	for _, call := range calls {
		h.learn(line, call.Leases)
		call.taken = false
		again := held && (call.waits || now.Before(call.until))
		switch {
		case call.gone, len(call.Leases) == 0 && line.replaced(call):
			call.done <- claimResult{}
		case r.err != nil && !again, len(call.Leases) > 0,
			!call.waits && !again && !call.goesOn():
			call.done <- r
		default:
			if again {
				call.Rest = next
			}
			call.looked = call.looked || !held && !call.Further
			call.pages++
			if call.stirred && !call.Further {
				call.stirred = false
				h.arm(line, later(call.Rest, now))
			}
			call.retryAt = now.Add(knownPause)
			openWindow = openWindow || !call.Opens.After(now)
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
	case openWindow: // another node is about to take them
		h.arm(line, now.Add(contendedPause))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// replaced reports whether a call's claimer made another one meanwhile.
func (l *claimLine) replaced(call *claimCall) bool {
	at := slices.Index(l.calls, call)
	return slices.ContainsFunc(l.calls[at+1:], func(c *claimCall) bool {
		return c.sameCaller(call)
	})
}

// meanOf returns the mean bytes of the documents of a task in the stage of a line, lately.
func (h *claims) meanOf(line *claimLine) float64 {
	if mean := h.means[line.key][line.stage]; mean > 0 {
		return mean
	}
	return claimMean
}

// learn updates the mean bytes of a task's documents. It falls slowly, since it may rise again.
func (h *claims) learn(line *claimLine, leases []asyncflow.Lease) {
	if len(leases) == 0 {
		return
	}
	mean := h.meanOf(line)
	for _, one := range leases {
		size := float64(max(1, one.Size()))
		if mean > size {
			size = (15*mean + size) / 16
		}
		mean = size
	}
	if h.means[line.key] == nil {
		h.means[line.key] = map[string]float64{}
	}
	h.means[line.key][line.stage] = mean
}
