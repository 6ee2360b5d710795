package hot

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// tellEnds says that FollowUp has something to do after settlements of a type.
func (s *Path) tellEnds(t *catalog.Type, settled []asyncflow.Settlement) {
	var left leftToDo
	for i := range settled {
		one := &settled[i]
		if records.NeedsFollowUp(t, one) || one.Outcome.Kind == asyncflow.OutcomeCancelled {
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

func (l *leftToDo) add(t *catalog.Type, s *asyncflow.Settlement) {
	if linger := LingerAfter(t, s); !l.any || linger < l.linger {
		l.linger = linger
	}
	l.any = true
}

func (s *Path) tellLeft(tenant string, l leftToDo) {
	if l.any {
		s.core.TellLinger(tenant, l.linger)
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
func LingerAfter(t *catalog.Type, s *asyncflow.Settlement) time.Duration {
	child, stage := s.Lease.Options.Child, t.StageIndex(s.Lease.Stage)
	if child == nil || s.Verdict.Final() != asyncflow.StatusSucceeded || t.Awaited() || stage < 0 ||
		t.Stages[stage].FanOut == nil || t.Stages[stage].FanOut.MaxParallel > 0 {
		return 0
	}
	return min(endLinger, time.Duration(child.Count)*siblingLinger)
}
