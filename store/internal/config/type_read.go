package config

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// ReadTypes reads a tenant's types with their endpoints, and its table sets. A stage that has an
// endpoint for listening has the mode claim.
func ReadTypes(
	ctx context.Context, q postgres.Querier, tenant string,
) (types map[string]*Type, sets map[string]*TableSet, err error) {
	stored, err := readTaskTypes(ctx, q, tenant)
	if err != nil {
		return nil, nil, err
	}
	sets, locations, err := ReadLocations(ctx, q, tenant, "")
	if err != nil {
		return nil, nil, err
	}
	endpoints, err := ReadEndpoints(ctx, q, tenant, "")
	types = make(map[string]*Type, len(stored))
	for _, one := range stored {
		if at, ok := locations[one.Name]; ok { // else it was deleted in between
			one.TaskType = one.WithListeners(endpoints)
			t := &Type{Tenant: tenant, StoredType: one,
				endpoints: map[string][]asyncflow.Endpoint{}, serving: map[string][]string{}}
			t.locate(at)
			types[one.Name] = t
		}
	}
	for _, e := range endpoints {
		if t := types[e.Type]; t != nil {
			t.endpoints[e.Stage] = append(t.endpoints[e.Stage], e)
			if e.Serves() && !t.Claims(e.Stage) && t.WaitOf(e.Stage) == nil {
				t.serving[e.Stage] = append(t.serving[e.Stage], e.ID)
				t.allServing = append(t.allServing, e.ID)
			}
		}
	}
	for _, t := range types {
		t.unlimited = t.Limits == (asyncflow.Limits{}) && t.Flow == nil
	}
	for _, e := range endpoints {
		if t := types[e.Type]; t != nil && (e.Limits != (asyncflow.Limits{}) ||
			e.Health != (asyncflow.Health{})) {
			t.unlimited = false
		}
	}
	return types, sets, err
}

// WithSuspended returns a type of a tenant that is suspended, or isn't.
func WithSuspended(t *Type, suspended bool) *Type {
	if t.suspended == suspended {
		return t
	}
	changed := *t
	changed.suspended = suspended
	return &changed
}
