package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Backlog are the tasks of a type that are due, not under way, and wait for the same.
type Backlog struct {
	// WaitsFor is why they are not under way. Of those that were delayed or are tried again
	// it is that, if their time has come and governance has not moved them on.
	WaitsFor asyncflow.WaitReason
	Stage    string // where they stand, if they wait for its endpoints; else ""
	Tasks    int64
	Oldest   time.Time // since when the first of them has been due
}

// addBacklogs fills in Backlog and OldestDue. What keeps tasks in ready is found out only
// where there are some, and what the tenant's quotas say once for all types.
func (s *Store) addBacklogs(ctx context.Context, tenant string, all []counted) error {
	var quota asyncflow.WaitReason
	for i := range all {
		c := &all[i]
		for _, h := range c.held {
			c.addHeld(h)
		}
		if c.due > 0 {
			why, err := s.keepsInReady(ctx, c.t, func() (_ asyncflow.WaitReason, err error) {
				if quota == "" {
					quota, err = s.heldByQuota(ctx, tenant)
				}
				return quota, err
			})
			if err != nil {
				return err
			}
			c.add(Backlog{WaitsFor: why, Tasks: c.due, Oldest: c.since})
		}
		slices.SortFunc(c.Backlog,
			func(a, b Backlog) int {
				return cmp.Or(a.Oldest.Compare(b.Oldest),
					cmp.Compare(a.WaitsFor, b.WaitsFor))
			})
		if len(c.Backlog) > 0 {
			c.OldestDue = c.Backlog[0].Oldest
		}
	}
	return nil
}

// addHeld adds tasks that are held in wait. What they were filed under may be over: a stage
// may have lost its last endpoint since, or got one.
func (c *counted) addHeld(h heldTasks) {
	b := Backlog{WaitsFor: h.Reason, Tasks: h.Tasks, Oldest: h.Oldest}
	if h.Stage != "" {
		b.Stage, _ = c.t.Place(h.Stage, 1)
		switch {
		case !c.t.Serves(b.Stage):
			b.WaitsFor = asyncflow.WaitEndpoint
		case b.WaitsFor == asyncflow.WaitEndpoint:
			b.WaitsFor, b.Stage = asyncflow.WaitCapacity, ""
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

// keepsInReady returns why the tasks of a type that are due in ready are not leased; byQuota
// tells what the tenant's quotas say.
func (s *Store) keepsInReady(
	ctx context.Context,
	t *Type,
	byQuota func() (asyncflow.WaitReason, error),
) (asyncflow.WaitReason, error) {
	switch {
	case t.Paused():
		return asyncflow.WaitPaused, nil
	case !slices.ContainsFunc(t.StageNames(), t.Serves):
		return asyncflow.WaitEndpoint, nil
	}
	if why, err := s.heldByType(ctx, t); err != nil || why != "" {
		return why, err
	}
	return byQuota()
}
