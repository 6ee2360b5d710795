package settings

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Endpoints returns a tenant's endpoints, of one task type or (taskType "") of
// all, by type, stage and age.
func (s *Settings) Endpoints(
	ctx context.Context, tenant, taskType string,
) ([]asyncflow.Endpoint, error) {
	all, err := catalog.ReadEndpoints(ctx, s.core.DB(tenant), tenant, taskType)
	return all, postgres.Wrap(err, "Endpoints(%q)", tenant)
}

// EndpointPlace is the place of an endpoint in lists: by type, stage and age. The zero place
// comes before all endpoints.
type EndpointPlace struct {
	Type, Stage string
	catalog.Place
}

// PlaceOf returns the place of an endpoint.
func PlaceOf(e asyncflow.Endpoint) EndpointPlace {
	return EndpointPlace{e.Type, e.Stage, catalog.Place{At: e.CreatedAt, ID: e.ID}}
}

// EndpointPage returns up to limit of a tenant's endpoints after a place, of one task type or
// (taskType "") of all, and reports whether there are more.
func (s *Settings) EndpointPage(
	ctx context.Context, tenant, taskType string, after EndpointPlace, limit int,
) (page []asyncflow.Endpoint, more bool, err error) {
	rows, _ := s.core.DB(tenant).Query(ctx, catalog.SelectEndpoints(tenant)+`WHERE $1 IN ('', type)
		AND ($2::uuid IS NULL OR (type, stage, created_at, id) > ($3, $4, $5::timestamptz, $2))
		ORDER BY type, stage, created_at, id LIMIT $6`,
		taskType, catalog.OrNull(after.ID), after.Type, after.Stage, after.At, limit+1)
	page, more, err = catalog.CollectPage(rows, limit, catalog.PageBytes, catalog.ScanEndpoint,
		endpointBytes)
	return page, more, postgres.Wrap(err, "EndpointPage(%q)", tenant)
}

// Endpoint returns one endpoint; CodeNotFound when there is none.
func (s *Settings) Endpoint(ctx context.Context, tenant, id string) (asyncflow.Endpoint, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, catalog.SelectEndpoints(tenant)+`WHERE id = $1::uuid`,
		id)
	e, err := pgx.CollectExactlyOneRow(rows, catalog.ScanEndpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, unknownEndpoint(id)
	}
	return e, postgres.Wrap(err, "Endpoint(%q, %q)", tenant, id)
}

// checkStandsAlone refuses an endpoint with a weight if one for listening would then stand beside
// another one with a weight: CodeConflict, with the id of the oldest one. It also refuses an
// endpoint for listening if the tasks of its type can't be claimed.
func (s *Settings) checkStandsAlone(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, e asyncflow.Endpoint,
) error {
	if e.Weight == 0 {
		return nil
	}
	if e.Listens() {
		if err := t.CheckListeners([]asyncflow.Endpoint{e}); err != nil {
			return err
		}
	}
	if err := s.lockTenant(ctx, tx, tenant); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT id::text, url FROM `+catalog.EndpointsOf(tenant)+`
		WHERE type = $1 AND stage = $2 AND id <> $3::uuid AND weight > 0 AND ($4 OR url = $5)
		ORDER BY created_at, id LIMIT 1`, e.Type, e.Stage, e.ID, e.Listens(), asyncflow.ListenURL)
	if err != nil {
		return err
	}
	var id, url string
	if _, err = pgx.ForEachRow(rows, []any{&id, &url}, func() error { return nil }); err != nil ||
		id == "" {
		return err
	}
	what := "sends the deliveries of " + e.Type + "/" + e.Stage + " to " + url
	if url == asyncflow.ListenURL {
		what = "is for listening to the deliveries of " + e.Type + "/" + e.Stage
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "the endpoint %s %s: an endpoint for listening "+
		"can't stand beside another one. Delete that one, or set its weight to 0", id, what)
}

// checkListeners refuses a type that can't be claimed, but has endpoints for listening.
func checkListeners(ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType) error {
	endpoints, err := catalog.ReadEndpoints(ctx, tx, tenant, t.Name)
	if err != nil {
		return err
	}
	return t.CheckListeners(endpoints)
}
