package config

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// Type is a task type as this node knows it: an immutable snapshot.
type Type struct {
	Tenant string
	StoredType
	Location
	// First, Begin and End are the positions of the oldest roll that may have tasks of the type, of
	// the oldest with a ready table that may, and of the open one. There may be gaps between them.
	First, Begin, End int

	endpoints  map[string][]asyncflow.Endpoint // by stage
	serving    map[string][]string             // the ids of endpoints that get deliveries, by stage
	allServing []string                        // the same of all stages
	unlimited  bool                            // it has no limits of any kind
	suspended  bool                            // whether its tenant is
}

// Suspended reports whether the tenant is suspended or deleted, so that nothing is leased.
func (t *Type) Suspended() bool { return t.suspended }

// Paused reports whether nothing is leased: the type is paused, or its tenant is suspended.
func (t *Type) Paused() bool { return t.suspended || t.PauseState.Paused() }

// Capacity is PauseState.Capacity, or 0 while the tenant is suspended.
func (t *Type) Capacity(full int, now time.Time) int {
	if t.suspended {
		return 0
	}
	return t.PauseState.Capacity(full, now)
}

// Endpoints returns the endpoints of a stage, also endpoints that get no deliveries.
func (t *Type) Endpoints(stage string) []asyncflow.Endpoint { return t.endpoints[stage] }

// Serves reports whether tasks in line at a stage need only capacity: it has an endpoint that gets
// deliveries, or they are to wait for a signal.
func (t *Type) Serves(stage string) bool {
	return len(t.serving[stage]) > 0 || t.WaitOf(stage) != nil
}

// Serving returns the ids of a stage's endpoints that get deliveries.
func (t *Type) Serving(stage string) []string { return t.serving[stage] }

// AllServing is Serving for all stages.
func (t *Type) AllServing() []string { return t.allServing }

// AllEndpoints returns the endpoints of all stages.
func (t *Type) AllEndpoints() (all []asyncflow.Endpoint) {
	for _, endpoints := range t.endpoints {
		all = append(all, endpoints...)
	}
	return all
}

// OtherEndpoint reports whether an endpoint of the type other than id gets deliveries.
func (t *Type) OtherEndpoint(id string) bool {
	for _, endpoints := range t.endpoints {
		for _, e := range endpoints {
			if e.ID != id && e.Serves() {
				return true
			}
		}
	}
	return false
}

// Gathering returns how long a task of a stage may wait on its node for other tasks of its
// batch.
func Gathering(t *Type, stage string) (longest time.Duration) {
	for i := range t.endpoints[stage] {
		longest = max(longest, t.endpoints[stage][i].Batch.MaxWait.Std())
	}
	return longest
}

// EndpointURL returns the URL of an endpoint by its id, "" when there is none.
func (t *Type) EndpointURL(id string) string {
	for _, endpoints := range t.endpoints {
		for _, e := range endpoints {
			if e.ID == id {
				return e.URL
			}
		}
	}
	return ""
}

// RunsAt returns the id of the endpoint at which a leased task runs: the one that its lease names,
// otherwise the only one of its stage if it is older than the lease; "": it isn't known, or
// claimed.
func (t *Type) RunsAt(l asyncflow.Lease, named *string) string {
	if named != nil {
		return *named
	}
	if l.Claimer != "" {
		return ""
	}
	if all := t.Endpoints(l.Stage); len(all) == 1 && all[0].Serves() &&
		all[0].CreatedAt.Before(l.LeasedAt) {
		return all[0].ID
	}
	return ""
}

// TypeKey names a task type among all tenants.
type TypeKey struct{ Tenant, Type string }

// Key returns the type's key.
func (t *Type) Key() TypeKey { return TypeKey{t.Tenant, t.Name} }

// UnknownType is the error for a task type that doesn't exist.
func UnknownType(name string) error {
	return &asyncflow.Error{Code: asyncflow.CodeNotFound, Message: "there is no task type " + name,
		Fields: []asyncflow.FieldError{{Field: "type",
			Message: "is not a task type of this tenant"}}}
}

// UnknownTask is the error for a task that doesn't exist.
func UnknownTask(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no task %s", id)
}
