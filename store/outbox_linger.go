package store

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// tellEnds says that FollowUp has something to do after settlements of a type.
func (s *hotPath) tellEnds(t *Type, settled []asyncflow.Settlement) {
	var left leftToDo
	for i := range settled {
		one := &settled[i]
		if needsFollowUp(t, one) || one.Outcome.Kind == asyncflow.OutcomeCancelled {
			left.add(t, one)
		}
	}
	s.tellLeft(t.Tenant, left)
}

// leftToDo says whether something is left to do after settlements, and how long that may wait for
// more.
type leftToDo struct {
	any    bool
	linger time.Duration
}

func (l *leftToDo) add(t *Type, s *asyncflow.Settlement) {
	if linger := lingerAfter(t, s); !l.any || linger < l.linger {
		l.linger = linger
	}
	l.any = true
}

func (s *hotPath) tellLeft(tenant string, l leftToDo) {
	if l.any {
		s.tellLinger(tenant, l.linger)
	}
}

const (
	// siblingLinger is how long the end of a child may wait for others, for each of its siblings: a
	// fraction of the time that these take. endLinger is the most.
	siblingLinger = 2 * time.Microsecond
	endLinger     = 20 * time.Millisecond
)

// lingerAfter returns how long what is left to do after a settlement may wait for more. The end of
// one child of many moves nothing, but if it has failed, or makes room for another one.
func lingerAfter(t *Type, s *asyncflow.Settlement) time.Duration {
	child, stage := s.Lease.Options.Child, t.StageIndex(s.Lease.Stage)
	if child == nil || s.Verdict.Final() != asyncflow.StatusSucceeded || t.Awaited() || stage < 0 ||
		t.Stages[stage].FanOut == nil || t.Stages[stage].FanOut.MaxParallel > 0 {
		return 0
	}
	return min(endLinger, time.Duration(child.Count)*siblingLinger)
}
