package workercheck

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

// attempt keeps the reports on an attempt at a task.
type attempt struct {
	seq     int
	mu      sync.Mutex
	reports []report
	changed chan struct{} // closed and replaced with each report

	// play answers a report that is valid, after the reports in before; nil: asANode. task is the
	// status in a 200.
	play func(before []report, one report) (status int, task asyncflow.Status)
}

// add decides how to answer a report, and stores it.
func (a *attempt) add(one report) report {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.status == 0 {
		play := a.play
		if play == nil {
			play = answerAsNode
		}
		one.status, one.task = play(a.reports, one)
		if one.status != http.StatusOK {
			one.problem = "this is a rehearsal: the worker is to see this answer"
		}
	}
	a.reports = append(a.reports, one)
	close(a.changed)
	a.changed = make(chan struct{})
	return one
}

// answerAsNode answers like a node: the first final report wins.
func answerAsNode(before []report, one report) (int, asyncflow.Status) {
	last, over := lastWord(before)
	switch {
	case !over && one.isLast():
		return http.StatusOK, endOf(one)
	case !over:
		return http.StatusOK, asyncflow.StatusRunning
	case one.verb == last.verb && same(one.done.Output, last.done.Output) &&
		choiceOf(one.done).confirms(choiceOf(last.done)) && startSame(one.done, last.done):
		return http.StatusOK, endOf(last)
	}
	return http.StatusConflict, ""
}

func endOf(one report) asyncflow.Status {
	switch one.verb {
	case verbComplete:
		return asyncflow.StatusSucceeded
	case verbSnooze:
		return asyncflow.StatusWaiting
	}
	return asyncflow.StatusFailed
}

// isLast reports whether a report ends its attempt.
func (one report) isLast() bool {
	return one.verb == verbComplete || one.verb == verbFail || one.verb == verbSnooze
}

// lastWord returns the report that ended an attempt, or that came after its end.
func lastWord(reports []report) (report, bool) {
	i := slices.IndexFunc(reports, func(one report) bool {
		return one.isLast() && (one.status == http.StatusOK || one.status == http.StatusConflict)
	})
	if i < 0 {
		return report{}, false
	}
	return reports[i], true
}

// seen returns the reports so far.
func (a *attempt) seen() []report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.reports)
}

// answerWith sets how reports are answered.
func (a *attempt) answerWith(play func(before []report, one report) (int, asyncflow.Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.play = play
}

// await waits until wanted returns true for the reports, and reports whether it did. It gives up at
// a time, or when ctx ends.
func (a *attempt) await(ctx context.Context, until time.Time, wanted func([]report) bool) bool {
	timeUp := time.NewTimer(time.Until(until))
	defer timeUp.Stop()
	for {
		a.mu.Lock()
		ok, changed := wanted(a.reports), a.changed
		a.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timeUp.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// problem returns the reason why an accepted attempt isn't done; "": it is.
func (a *attempt) problem(limit time.Duration) string {
	seen := a.seen()
	if last, ok := lastWord(seen); ok {
		switch last.verb {
		case verbFail:
			return "it accepted the delivery, and reported that it failed: " + last.error
		case verbSnooze:
			return "it accepted the delivery, and " + putOff(last.error)
		}
		return ""
	}
	for _, one := range seen {
		if one.problem != "" {
			return fmt.Sprintf("its report %s was answered with %d: %s", one.verb, one.status,
				one.problem)
		}
	}
	return fmt.Sprintf("it answered 202, and reported no end within %s (calls to callback.url: %d)",
		limit, len(seen))
}
