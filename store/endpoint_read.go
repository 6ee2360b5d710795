package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Endpoints returns a tenant's endpoints, of one task type or (taskType "") of
// all, by type, stage and age.
func (s *Store) Endpoints(
	ctx context.Context,
	tenant, taskType string,
) ([]asyncflow.Endpoint, error) {
	all, err := readEndpoints(ctx, s.of(tenant), tenant, taskType)
	return all, wrap(err, "Endpoints(%q)", tenant)
}

// EndpointPlace is the place of an endpoint in lists: by type, stage and age. The zero place
// comes before all endpoints.
type EndpointPlace struct {
	Type, Stage string
	Place
}

// PlaceOf returns the place of an endpoint.
func PlaceOf(e asyncflow.Endpoint) EndpointPlace {
	return EndpointPlace{e.Type, e.Stage, Place{e.CreatedAt, e.ID}}
}

// EndpointPage returns up to limit of a tenant's endpoints after a place, of one task type or
// (taskType "") of all, and reports whether there are more.
func (s *Store) EndpointPage(
	ctx context.Context,
	tenant, taskType string,
	after EndpointPlace,
	limit int,
) (page []asyncflow.Endpoint, more bool, err error) {
	rows, err := s.of(tenant).Query(ctx, selectEndpoints(tenant)+`WHERE $1 IN ('', type)
		AND ($2::uuid IS NULL OR (type, stage, created_at, id) > ($3, $4, $5::timestamptz, $2))
		ORDER BY type, stage, created_at, id LIMIT $6`,
		taskType, orNull(after.ID), after.Type, after.Stage, after.At, limit+1)
	if err == nil {
		page, more, err = collectPage(rows, limit, PageBytes, scanEndpoint, endpointBytes)
	}
	return page, more, wrap(err, "EndpointPage(%q)", tenant)
}

// Endpoint returns one endpoint; CodeNotFound when there is none.
func (s *Store) Endpoint(ctx context.Context, tenant, id string) (asyncflow.Endpoint, error) {
	rows, err := s.of(tenant).Query(ctx, selectEndpoints(tenant)+`WHERE id = $1::uuid`, id)
	if err != nil {
		return asyncflow.Endpoint{}, wrap(err, "Endpoint(%q, %q)", tenant, id)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanEndpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, unknownEndpoint(id)
	}
	return e, wrap(err, "Endpoint(%q, %q)", tenant, id)
}
