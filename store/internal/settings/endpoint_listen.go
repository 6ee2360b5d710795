package settings

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// checkStandsAlone refuses an endpoint with a weight if one for listening would then stand beside
// another one with a weight: CodeConflict, with the id of the oldest one. It also refuses an
// endpoint for listening if the tasks of its type can't be claimed.
func (s *endpoints) checkStandsAlone(
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
	rows, err := tx.Query(ctx, `SELECT id::text, url FROM `+config.EndpointsOf(tenant)+`
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
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"the endpoint %s %s: an endpoint for listening "+
			"can't stand beside another one. Delete that one, or set its weight to 0", id, what)
}

// checkListeners refuses a type that can't be claimed, but has endpoints for listening.
func checkListeners(ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType) error {
	endpoints, err := config.ReadEndpoints(ctx, tx, tenant, t.Name)
	if err != nil {
		return err
	}
	return t.CheckListeners(endpoints)
}
