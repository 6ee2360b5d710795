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

// Seals counts the sealed values of a tenant's endpoints, and the values sealed by another key
// than the one that sealedBy names.
func (s *Settings) Seals(
	ctx context.Context, tenant string, sealedBy []byte,
) (all, others int, err error) {
	err = s.core.DB(tenant).QueryRow(ctx,
		`SELECT count(*), count(*) FILTER (WHERE substr(sealed, 1, $2) <> $1)
		FROM (SELECT sealed FROM `+catalog.EndpointSecretsOf(tenant)+` UNION ALL
		  SELECT outbound FROM `+catalog.EndpointsOf(tenant)+` WHERE outbound IS NOT NULL) a (sealed)`,
		sealedBy, len(sealedBy)).Scan(&all, &others)
	return all, others, postgres.Wrap(err, "Seals(%q)", tenant)
}

// resealBatch is how many endpoints are sealed again in one transaction.
const resealBatch = 100

// Reseal calls again for the next endpoints by id that have a value sealed by another key than
// the one that sealedBy names, and writes them; begin with after "". It returns the id of the
// last endpoint ("" when there were none) and how many it wrote. It returns the errors of again
// together: each leaves its endpoint as it is, and doesn't affect the rest.
func (s *Settings) Reseal(
	ctx context.Context, tenant, after string, sealedBy []byte,
	again func(*asyncflow.Endpoint) error,
) (last string, done int, err error) {
	var failed []error
	if after == "" {
		after = "00000000-0000-0000-0000-000000000000"
	}
	err = s.core.Change(ctx, tenant, func(tx pgx.Tx) error {
		all, err := lockEndpoints(ctx, tx, tenant, `id IN (SELECT id FROM `+catalog.EndpointsOf(tenant)+
			` e
			WHERE id > $1::uuid AND (substr(outbound, 1, $3) <> $2
			  OR EXISTS (SELECT FROM `+catalog.EndpointSecretsOf(tenant)+` s
			      WHERE s.endpoint = e.id AND substr(s.sealed, 1, $3) <> $2))
			ORDER BY id LIMIT $4)`, after, sealedBy, len(sealedBy), resealBatch)
		if err == nil && len(all) == 0 {
			err = catalog.ErrSame
		}
		if err != nil {
			return err
		}
		for _, e := range all {
			last = e.ID
			if err := again(&e); err != nil {
				failed = append(failed, err)
				continue
			}
			if err := s.writeEndpoint(ctx, tx, tenant, e); err != nil {
				return err
			}
			done++
		}
		return nil
	})
	if errors.Is(err, catalog.ErrSame) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, postgres.Wrap(err, "Reseal(%q)", tenant)
	}
	return last, done, errors.Join(failed...)
}

// ForgetSecrets deletes a tenant's expired signing secrets, and returns how many it deleted.
func (s *Settings) ForgetSecrets(ctx context.Context, tenant string) (int, error) {
	tag, err := s.core.DB(tenant).Exec(ctx,
		`DELETE FROM `+catalog.EndpointSecretsOf(tenant)+` WHERE expires_at < $1`, s.core.Clock.Now())
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetSecrets(%q)", tenant)
}

// DryRunForgetSecrets counts the secrets that ForgetSecrets would delete.
func (s *Settings) DryRunForgetSecrets(ctx context.Context, tenant string) (int, error) {
	return catalog.CountRows(ctx, s.core.DB(tenant),
		`SELECT count(*) FROM `+catalog.EndpointSecretsOf(tenant)+` WHERE expires_at < $1`,
		s.core.Clock.Now())
}
