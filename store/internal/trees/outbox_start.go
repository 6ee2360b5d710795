package trees

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// Starter has tasks go on with their next stage, and new children begin, at once, if this node has
// capacity for them.
type Starter interface {
	// Admit returns the leases with which tasks go on after settlements of a type; nil for a task
	// that goes in line. The slice itself may be nil.
	Admit(t *catalog.Type, settled []asyncflow.Settlement) []*asyncflow.Lease
	// AdmitNew gives new tasks of a type the leases with which they begin. Tasks without one go in
	// line.
	AdmitNew(t *catalog.Type, made []*hot.Insertion)
	// Start begins with these leases, or gives their capacity back if they were not committed.
	Start(t *catalog.Type, leases []*asyncflow.Lease, committed bool)
}

// startNext lets tasks of a type go on, and new ones begin, at once, as far as there is capacity.
// The remaining tasks go in line.
func (f *followUp) startNext(changes *typeChanges) {
	if f.starter != nil && len(changes.made) > 0 {
		f.starter.AdmitNew(changes.t, changes.made)
	}
	changes.leases = hot.AddNew(&changes.tokens, changes.made, f.now)
	var admitted []*asyncflow.Lease
	if len(changes.advancing) > 0 {
		admitted = f.starter.Admit(changes.t, changes.advancing)
	}
	for i, s := range changes.advancing {
		if admitted != nil && admitted[i] != nil {
			changes.leases = append(changes.leases, admitted[i])
		} else {
			f.line(changes, s)
		}
	}
	hot.BeginLeases(changes.leases, changes.t, f.now)
}

// start begins with the leases of the transaction, and reports whether there are any. If its end is
// unknown, they may stand.
func (f *followUp) start(committed bool) (any bool) {
	for _, changes := range f.byType {
		if len(changes.leases) == 0 {
			continue
		}
		any = true
		if committed {
			hot.AnnounceLeases(f.s.hot, changes.t, changes.leases)
		} else {
			hot.AnnounceEnds(f.s.hot, changes.t.Key(), changes.leases)
		}
		f.starter.Start(changes.t, changes.leases, committed)
	}
	return any
}
