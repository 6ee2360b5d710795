package asyncflow

import "slices"

// Capability is something that a task type may use, and that nodes of an earlier version don't
// know: they would do the wrong thing with its tasks.
type Capability string

const (
	CapDeliver Capability = "deliver" // what came before, in deliveries
	CapNext    Capability = "next"    // stages that a worker chooses, or that follow a failure
	CapSignals Capability = "signals" // stages that wait for a signal
	CapLinks   Capability = "links"   // by which people decide about a wait
	CapSpawn   Capability = "spawn"   // tasks that an attempt starts
	CapJoin    Capability = "join"    // and for which its task may wait
)

// Capabilities are all that this version knows.
var Capabilities = []Capability{CapDeliver, CapNext, CapSignals, CapLinks, CapSpawn, CapJoin}

// Uses returns what the type uses that a node may not know.
func (t TaskType) Uses() (all []Capability) {
	add := func(some ...Capability) {
		for _, c := range some {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		if s.Deliver != nil {
			add(CapDeliver)
		}
		if len(s.Next) > 0 || s.OnFailure != nil {
			add(CapNext)
		}
		if s.Mode == ModeWait {
			add(CapSignals)
		}
		if s.Wait != nil && s.Wait.Links != nil {
			add(CapLinks)
		}
		if len(s.Spawn) > 0 {
			add(CapSpawn, CapJoin) // a worker may answer with join
		}
	}
	return all
}
