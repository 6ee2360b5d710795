package hot

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// tellEnds says that there is something to do for FollowUp after settlements of a type.
func (s *Path) tellEnds(t *config.Type, settled []asyncflow.Settlement) {
	var pending pendingFollowUp
	for i := range settled {
		one := &settled[i]
		if records.NeedsFollowUp(t, one) || one.Outcome.Kind == asyncflow.OutcomeCancelled {
			pending.add(t, one)
		}
	}
	s.tellPending(t.Tenant, pending)
}

// pendingFollowUp says whether something is left to do after settlements, and how long that may
// wait for more.
type pendingFollowUp struct {
	any    bool
	linger time.Duration
}

func (p *pendingFollowUp) add(t *config.Type, s *asyncflow.Settlement) {
	if linger := LingerAfter(t, s); !p.any || linger < p.linger {
		p.linger = linger
	}
	p.any = true
}

func (s *Path) tellPending(tenant string, p pendingFollowUp) {
	if p.any {
		s.core.TellFollowUpWithin(tenant, p.linger)
	}
}

const (
	// siblingLinger is how long the end of a child may wait for other ends, for each of its
	// siblings: a fraction of the time that these take. endLinger is the most.
	siblingLinger = 2 * time.Microsecond
	endLinger     = 20 * time.Millisecond
)

// LingerAfter returns how long the follow-up of a settlement may wait for more. The end of one
// child of many moves nothing, unless the child failed, or makes room for another one.
func LingerAfter(t *config.Type, s *asyncflow.Settlement) time.Duration {
	child := s.Lease.Options.Child
	stage := t.StageIndex(s.Lease.Stage)
	if child == nil || s.Verdict.Final() != asyncflow.StatusSucceeded || t.Awaited() || stage < 0 ||
		t.Stages[stage].FanOut == nil || t.Stages[stage].FanOut.MaxParallel > 0 {
		return 0
	}
	return min(endLinger, time.Duration(child.Count)*siblingLinger)
}
