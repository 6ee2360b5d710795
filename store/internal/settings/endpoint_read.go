package settings

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Endpoints returns a tenant's endpoints, of one task type or (taskType "") of
// all, by type, stage and age.
func (s *endpoints) Endpoints(
	ctx context.Context, tenant, taskType string,
) ([]asyncflow.Endpoint, error) {
	all, err := config.ReadEndpoints(ctx, s.core.DB(tenant), tenant, taskType)
	return all, postgres.Wrap(err, "Endpoints(%q)", tenant)
}

// EndpointPlace is the place of an endpoint in lists: by type, stage and age. The zero place
// comes before all endpoints.
type EndpointPlace struct {
	Type, Stage string
	postgres.Place
}

// PlaceOf returns the place of an endpoint.
func PlaceOf(e asyncflow.Endpoint) EndpointPlace {
	return EndpointPlace{e.Type, e.Stage, postgres.Place{At: e.CreatedAt, ID: e.ID}}
}

// EndpointPage returns up to limit of a tenant's endpoints after a place, of one task type or
// (taskType "") of all, and reports whether there are more.
func (s *endpoints) EndpointPage(
	ctx context.Context, tenant, taskType string, after EndpointPlace, limit int,
) (page []asyncflow.Endpoint, more bool, err error) {
	rows, _ := s.core.DB(tenant).Query(ctx, config.SelectEndpoints(tenant)+`WHERE $1 IN ('', type)
		AND ($2::uuid IS NULL OR (type, stage, created_at, id) > ($3, $4, $5::timestamptz, $2))
		ORDER BY type, stage, created_at, id LIMIT $6`,
		taskType, postgres.OrNull(after.ID), after.Type, after.Stage, after.At, limit+1)
	page, more, err = postgres.CollectPage(rows, limit, postgres.PageBytes, config.ScanEndpoint,
		endpointBytes)
	return page, more, postgres.Wrap(err, "EndpointPage(%q)", tenant)
}

// Endpoint returns one endpoint; CodeNotFound when there is none.
func (s *endpoints) Endpoint(ctx context.Context, tenant, id string) (asyncflow.Endpoint, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, config.SelectEndpoints(tenant)+`WHERE id = $1::uuid`,
		id)
	e, err := pgx.CollectExactlyOneRow(rows, config.ScanEndpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, unknownEndpoint(id)
	}
	return e, postgres.Wrap(err, "Endpoint(%q, %q)", tenant, id)
}
