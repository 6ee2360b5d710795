package governance

import (
	"context"
	"maps"
	"slices"
	"time"
)

// SetJobs replaces the jobs of the governor.
func (g *Governor) SetJobs(jobs ...Job) { g.jobs = jobs }

// SetTurn changes how long a run of the job operations begins with others.
func (g *Governor) SetTurn(d time.Duration) { g.standard.operations.turn = d }

// SetEraseTurn changes how long the job erase stays with a tenant.
func (g *Governor) SetEraseTurn(d time.Duration) { g.standard.erase.turn = d }

// HeldSince makes the rolls that the job erase leaves alone held for that long, and looked at again
// now.
func (g *Governor) HeldSince(d time.Duration) {
	now := g.store.Clock.Now()
	g.standard.erase.rests = rests{}
	for r := range g.standard.erase.held.rolls {
		g.standard.erase.held.rolls[r] = heldTimes{now.Add(-d), now}
	}
}

// SetExpireTurn changes how long the job expire stays with a tenant, and how long it begins rounds.
func (g *Governor) SetExpireTurn(turn, round time.Duration) {
	g.standard.expire.turn = turn
	g.standard.expire.round = round
}

// SetExpireRest changes how the job expire rests.
func (g *Governor) SetExpireRest(rest func(context.Context, time.Duration) bool) {
	g.standard.expire.rest = rest
}

// CalmRolls exports longestQuietRolls.
const CalmRolls = longestQuietRolls

// LeaveRollsAlone makes the job roll leave tenants alone, as Run does.
func (g *Governor) LeaveRollsAlone() { g.standard.roll.rests.setLongestQuiet(longestQuietRolls) }

// VisitBusyRolls makes activity a reason again to visit the rolls that the job leaves alone.
func (g *Governor) VisitBusyRolls() {
	resting := &g.standard.roll.rests
	resting.mu.Lock()
	defer resting.mu.Unlock()
	for tenant, as := range resting.tenants {
		as.quietUntil = time.Time{}
		resting.tenants[tenant] = as
	}
}

// Next exports next.
func Next(spec string, last, now time.Time) time.Time { return next(spec, last, now) }

// ToFold returns the tenants with tallies for the next fold to add up.
func (g *Governor) ToFold(ctx context.Context) ([]string, error) {
	unfolded, err := g.standard.fold.restless(ctx)
	return slices.Sorted(maps.Keys(unfolded)), err
}

// ToRecord returns the tenants that the next run of the job history visits.
func (g *Governor) ToRecord(ctx context.Context) ([]string, error) {
	restless, err := g.standard.history.restless(ctx)
	return slices.Sorted(maps.Keys(restless)), err
}

// Attention returns the names of the types that are busy.
func (g *Governor) Attention() (names []string) {
	now := g.store.Clock.Now()
	for _, types := range g.store.Catalog.Tenants() {
		for name, t := range types {
			g.attention.mu.Lock()
			seen, known := g.attention.watchOf(t.Tenant).seen[name]
			g.attention.mu.Unlock()
			if known && seen.busy(t, now) {
				names = append(names, name)
			}
		}
	}
	return names
}

// InRounds takes steps for tenants in turn.
var InRounds = inRounds

// Jobs returns all jobs.
func (g *Governor) Jobs() []Job { return g.jobs }

// VisitAlways lets each run of a job visit all tenants where Postgres doesn't tell what has been
// written, as with Citus. Call it before the tests.
func VisitAlways() { sweep = 1 }
