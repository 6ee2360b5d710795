package counts

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Backlog counts the tasks of a type that are due, not under way, and wait for the same reason.
// Those that wait for other tasks come last: they are in time, however long they wait.
type Backlog struct {
	// WaitsFor is why they are not under way. Delayed and retried tasks keep that reason when
	// they are due until a background job moves them to ready.
	WaitsFor asyncflow.WaitReason
	Stage    string // of the tasks, if they wait for its endpoints; else ""
	Because  string // WaitUnhealthy: see asyncflow.StoppedText
	Tasks    int64
	Oldest   time.Time // when the oldest of them became due
}

// addBacklogs sets Backlog and OldestDue. It looks for the reason why tasks wait in ready only
// where there are some, and reads the tenant's quotas once for all types.
func (s *Counts) addBacklogs(ctx context.Context, tenant string, all []counted) error {
	var quota asyncflow.WaitReason
	for i := range all {
		c := &all[i]
		for _, h := range c.inWait {
			c.addDueInWait(h)
		}
		if c.due > 0 {
			why, err := s.keepsInReady(ctx, c.t, func() (_ asyncflow.WaitReason, err error) {
				if quota == "" {
					quota, err = s.whyOfTenant(ctx, tenant)
				}
				return quota, err
			})
			if err != nil {
				return err
			}
			c.add(Backlog{WaitsFor: why, Tasks: c.due, Oldest: c.since})
		}
		for i := range c.Backlog {
			if b := &c.Backlog[i]; b.WaitsFor == asyncflow.WaitUnhealthy {
				b.Because = asyncflow.StoppedText(c.t.Endpoints(b.Stage), s.core.Clock.Now())
			}
		}
		slices.SortFunc(c.Backlog, func(a, b Backlog) int {
			if others := a.WaitsFor.ForOthers(); others != b.WaitsFor.ForOthers() {
				if others {
					return 1
				}
				return -1
			}
			return cmp.Or(a.Oldest.Compare(b.Oldest), cmp.Compare(a.WaitsFor, b.WaitsFor))
		})
		if len(c.Backlog) > 0 && !c.Backlog[0].WaitsFor.ForOthers() {
			c.OldestDue = c.Backlog[0].Oldest
		}
	}
	return nil
}

// addDueInWait adds due tasks in wait. The reason in their rows may be out of date: the stage may
// have lost its last endpoint since, or got one.
func (c *counted) addDueInWait(h dueInWait) {
	b := Backlog{WaitsFor: h.Reason, Tasks: h.Tasks, Oldest: h.Oldest}
	if h.Stage != "" {
		b.Stage, _ = c.t.Mapped(h.Stage, 1)
		switch {
		case c.t.Claims(b.Stage):
			b.WaitsFor = asyncflow.WaitClaimer
		case !c.t.Serves(b.Stage):
			b.WaitsFor = asyncflow.WaitEndpoint
		case b.WaitsFor == asyncflow.WaitEndpoint:
			b.WaitsFor = asyncflow.WaitCapacity
			b.Stage = ""
		}
	}
	c.add(b)
}

func (c *counted) add(b Backlog) {
	for i := range c.Backlog {
		if same := &c.Backlog[i]; same.WaitsFor == b.WaitsFor && same.Stage == b.Stage {
			same.Tasks += b.Tasks
			if b.Oldest.Before(same.Oldest) {
				same.Oldest = b.Oldest
			}
			return
		}
	}
	c.Backlog = append(c.Backlog, b)
}

// keepsInReady returns why the due tasks of a type in ready are not leased. byQuota returns the
// reason by the tenant's quotas.
func (s *Counts) keepsInReady(
	ctx context.Context, t *config.Type, byQuota func() (asyncflow.WaitReason, error),
) (asyncflow.WaitReason, error) {
	switch {
	case t.Paused():
		return asyncflow.WaitPaused, nil
	case !slices.ContainsFunc(t.StageNames(), t.Serves):
		return asyncflow.WaitEndpoint, nil
	}
	if why, err := s.whyOfType(ctx, t); err != nil || why != "" {
		return why, err
	}
	return byQuota()
}
