package asyncflow

import "slices"

// Capability is something that a task type, a schedule or rules of alerts may use, and that nodes
// of an earlier version don't know: they would do the wrong thing with it.
type Capability string

const (
	CapDeliver Capability = "deliver"  // what came before, in deliveries
	CapNext    Capability = "next"     // stages that a worker chooses, or that follow a failure
	CapSignals Capability = "signals"  // stages that wait for a signal
	CapLinks   Capability = "links"    // by which people decide about a wait
	CapSpawn   Capability = "spawn"    // tasks that an attempt starts
	CapJoin    Capability = "join"     // and for which its task may wait
	CapDays    Capability = "days"     // durations in days and weeks
	CapOnFinal Capability = "on_final" // ends that are told
	CapErasure Capability = "erasure"  // tasks without contents
	CapWorkers Capability = "workers"  // filters by the worker of an attempt
	CapAlerts  Capability = "alerts"   // rules on failed tasks, flow keys and waits

	CapContextRetention Capability = "context_retention" // contents that are erased after a time
	CapSearchable       Capability = "searchable"        // fields with an index
	CapFairFlow         Capability = "fair_flow"         // flow keys that take turns
	CapLifetimes        Capability = "lifetimes"         // tasks that expire
	CapClaimRules       Capability = "claim_rules"       // of who may claim a task
	CapStartedRules     Capability = "started_rules"     // of who may claim a started task
	CapStartedLifetimes Capability = "started_lifetimes" // of tasks of attempts and operations
	CapFingerprints     Capability = "fingerprints"      // filters by the kind of an error
	CapPriorityFirst    Capability = "priority_first"    // head starts before turns
)

// Capabilities are all that this version knows.
var Capabilities = []Capability{CapDeliver, CapNext, CapSignals, CapLinks, CapSpawn, CapJoin,
	CapDays, CapOnFinal, CapErasure, CapWorkers, CapAlerts, CapContextRetention, CapSearchable,
	CapFairFlow, CapLifetimes, CapClaimRules, CapStartedRules, CapStartedLifetimes,
	CapFingerprints, CapPriorityFirst}

// usesOf returns CapDays if any of some durations is written in days or weeks.
func usesOf(all ...Duration) []Capability {
	if slices.ContainsFunc(all, Duration.inDays) {
		return []Capability{CapDays}
	}
	return nil
}

// Uses returns what the schedule uses that a node may not know.
func (s Schedule) Uses() []Capability {
	all := []Duration{s.Every}
	for _, d := range s.DependsOn {
		all = append(all, d.WaitFor)
	}
	all = append(all, s.StartBy.after, s.EndBy.after)
	uses := usesOf(all...)
	if s.OnFinal != nil {
		uses = append(uses, CapOnFinal)
	}
	if !s.StartBy.IsZero() || !s.EndBy.IsZero() {
		uses = append(uses, CapLifetimes)
	}
	if s.Claim != nil {
		uses = append(uses, CapClaimRules)
	}
	return uses
}

// Uses returns what the rules use that a node may not know.
func (r AlertRules) Uses() []Capability {
	all := usesOf(r.BacklogAge, r.NoClaimers, r.DependencyLate, r.BlockedKey, r.LongWait,
		r.FailedWithin, r.LongWaitWithin, r.WillExpireWithin)
	if r.WillExpire > 0 {
		all = append(all, CapLifetimes)
	}
	if r.hasLaterKinds() {
		// A node of an earlier version would measure nothing, and so end the episodes.
		return append(all, CapAlerts)
	}
	return all
}

// Uses returns what the type uses that a node may not know.
func (t TaskType) Uses() (all []Capability) {
	add := func(some ...Capability) {
		for _, c := range some {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	add(usesOf(t.ScheduleInterval, t.RollAge, t.Retention, t.ContextRetention)...)
	if !t.ContextRetention.IsZero() {
		add(CapErasure, CapContextRetention)
	}
	if t.OnFinal != nil || t.Notifies != "" {
		add(CapOnFinal)
	}
	if !t.StartBy.IsZero() || !t.EndBy.IsZero() || t.TimesStarts() {
		add(usesOf(t.StartBy.after, t.EndBy.after)...)
		add(CapLifetimes)
	}
	if len(t.Searchable) > 0 {
		add(CapSearchable)
	}
	if t.Fair() {
		add(CapFairFlow)
	}
	if t.PriorityFirst() {
		add(CapPriorityFirst)
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		add(usesOf(s.Timeout, s.MaxProcessingTime, s.MaxSnooze, s.StartBy)...)
		if s.Deliver != nil {
			add(CapDeliver)
		}
		if len(s.Next) > 0 || s.OnFailure != nil {
			add(CapNext)
		}
		if s.Mode == ModeWait {
			add(CapSignals)
		}
		if s.Wait != nil {
			add(usesOf(s.Wait.Timeout)...)
		}
		if s.Wait != nil && s.Wait.Links != nil {
			add(CapLinks)
		}
		if s.Window != nil {
			add(usesOf(s.Window.Per)...)
			if s.Window.Random != nil {
				add(CapClaimRules)
			}
		}
		if len(s.Spawn) > 0 {
			add(CapSpawn, CapJoin) // a worker may answer with join
		}
	}
	return all
}
