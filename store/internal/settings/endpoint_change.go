package settings

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// CreateEndpoint registers an endpoint for a stage of a task type. An unknown type or stage is
// CodeNotFound. If another endpoint of the stage has the same URL, it is CodeConflict unless
// AllowDuplicate is set; and so it is if one of the stage's endpoints is for listening, and
// another gets deliveries.
func (s *endpoints) CreateEndpoint(
	ctx context.Context, tenant string, e asyncflow.Endpoint,
) (asyncflow.Endpoint, error) {
	e.CreatedAt = s.core.Clock.Now()
	e.UpdatedAt = e.CreatedAt
	err := audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		t, err := config.ReadTaskType(ctx, tx, tenant, e.Type, "FOR SHARE")
		if err != nil {
			return err
		}
		if t.StageIndex(e.Stage) < 0 {
			return &asyncflow.Error{Code: asyncflow.CodeNotFound,
				Message: "task type " + e.Type + " has no stage " + e.Stage,
				Fields: []asyncflow.FieldError{{Field: "stage", Message: "is not a stage of " +
					e.Type}}}
		}
		if t.WaitOf(e.Stage) != nil {
			return asyncflow.InvalidField("stage",
				"is %s, whose mode is wait: its tasks wait for a signal, and it has no endpoints",
				e.Stage)
		}
		if t.Claims(e.Stage) {
			return asyncflow.InvalidField("stage",
				"is %s, whose mode is claim: workers ask for its tasks, and it has no endpoints",
				e.Stage)
		}
		_, err = tx.Exec(ctx,
			`INSERT INTO `+config.EndpointsOf(tenant)+`
			(id, type, stage, url, weight, outbound, challenged,
			  max_in_flight, rate, batch_max_tasks, batch_max_wait, batch_max_wait_text, created_at,
			  updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8, 0), nullif($9, ''), nullif($10, 0),
			  nullif($11, '0'::interval), nullif($12, '0s'), $13, $13)`,
			e.ID, e.Type, e.Stage, e.URL, e.Weight, e.Outbound, e.Challenged, e.Limits.MaxInFlight,
			e.Limits.Rate.String(), e.Batch.MaxTasks, e.Batch.MaxWait.Std(), e.Batch.MaxWait.Text(),
			e.CreatedAt)
		if err != nil {
			return err
		}
		if err := writeSecrets(ctx, tx, tenant, e); err != nil {
			return err
		}
		g := growth{asyncflow.QuotaEndpoints, endpointBytes(e)}
		if err := s.checkConfig(ctx, tx, tenant, g); err != nil {
			return err
		}
		if err := s.checkDuplicate(ctx, tx, tenant, e); err != nil {
			return err
		}
		return s.checkStandsAlone(ctx, tx, tenant, t.TaskType, e)
	})
	return e, postgres.Wrap(err, "CreateEndpoint(%q, %q, %q)", tenant, e.Type, e.Stage)
}

// writeSecrets replaces an endpoint's secrets by the secrets of e. The caller has locked
// the endpoint's row.
func writeSecrets(ctx context.Context, tx pgx.Tx, tenant string, e asyncflow.Endpoint) error {
	if _, err := tx.Exec(ctx, `DELETE FROM `+config.EndpointSecretsOf(tenant)+
		` WHERE endpoint = $1::uuid`, e.ID); err != nil {
		return err
	}
	for _, secret := range e.Secrets {
		_, err := tx.Exec(ctx,
			`INSERT INTO `+config.EndpointSecretsOf(tenant)+`
			  (id, endpoint, kind, sealed, public_key, created_at, expires_at)
			VALUES ($1::uuid, $2::uuid, $3, $4, $5, $6, $7)`,
			secret.ID, e.ID, secret.Kind, secret.Sealed, secret.PublicKey, secret.CreatedAt,
			postgres.OrNull(secret.ExpiresAt))
		if err != nil {
			return err
		}
	}
	return nil
}

// ChangeEndpoint calls change with an endpoint, writes the result and returns it. change must
// keep its id, type and stage. After an error of change, ChangeEndpoint writes nothing and
// returns the error as it is. If another endpoint of the stage has the new URL, it is
// CodeConflict unless AllowDuplicate is set. A weight is checked as at creation.
func (s *endpoints) ChangeEndpoint(
	ctx context.Context, tenant, id string, change func(*asyncflow.Endpoint) error,
) (e asyncflow.Endpoint, err error) {
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		t, err := lockTypeOf(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		before, err := lockEndpoint(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if err := audit.CheckPrecondition(ctx, config.EndpointETag(before), false); err != nil {
			return err
		}
		e = before
		if err := change(&e); err != nil {
			return err
		}
		e.UpdatedAt = s.core.Clock.Now()
		if err := s.writeEndpoint(ctx, tx, tenant, e); err != nil {
			return err
		}
		err = s.checkConfig(ctx, tx, tenant,
			growth{bytes: endpointBytes(e) - endpointBytes(before)})
		if err == nil && e.URL != before.URL {
			err = s.checkDuplicate(ctx, tx, tenant, e)
		}
		if err != nil || e.Weight == before.Weight {
			return err
		}
		return s.checkStandsAlone(ctx, tx, tenant, t.TaskType, e)
	})
	return e, postgres.Wrap(err, "ChangeEndpoint(%q, %q)", tenant, id)
}

// lockTypeOf locks the task type of an endpoint against changes, and returns it. Calls that change
// both lock the type first.
func lockTypeOf(
	ctx context.Context, tx pgx.Tx, tenant, endpoint string,
) (t config.StoredType, err error) {
	rows, _ := tx.Query(ctx, `SELECT type FROM `+config.EndpointsOf(tenant)+`
		WHERE id = $1::uuid`,
		endpoint)
	name, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	if errors.Is(err, pgx.ErrNoRows) {
		return t, unknownEndpoint(endpoint)
	}
	if err != nil {
		return t, err
	}
	t, err = config.ReadTaskType(ctx, tx, tenant, name, "FOR SHARE")
	if errors.Is(err, pgx.ErrNoRows) || asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return t, unknownEndpoint(endpoint) // the type was deleted, and its endpoints with it
	}
	return t, err
}

// lockEndpoint is lockEndpoints of one that must exist.
func lockEndpoint(
	ctx context.Context, tx pgx.Tx, tenant, id string,
) (e asyncflow.Endpoint, err error) {
	all, err := lockEndpoints(ctx, tx, tenant, `id = $1::uuid`, id)
	if err != nil {
		return e, err
	}
	if len(all) == 0 {
		return e, unknownEndpoint(id)
	}
	return all[0], nil
}

// lockEndpoints locks endpoints and then reads them. One statement for both would read their
// secrets as they were before it waited for the lock.
func lockEndpoints(
	ctx context.Context, tx pgx.Tx, tenant, where string, args ...any,
) ([]asyncflow.Endpoint, error) {
	rows, _ := tx.Query(ctx,
		`SELECT id::text FROM `+config.EndpointsOf(tenant)+` e WHERE `+where+`
			ORDER BY id FOR UPDATE`,
		args...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if rows, err = tx.Query(ctx, config.SelectEndpoints(tenant)+
		`WHERE id = ANY ($1::uuid[]) ORDER BY id`, ids); err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, config.ScanEndpoint)
}

// writeEndpoint writes the fields of an endpoint that may change. If its health is the zero
// value it deletes the row of the health; other health is written by SetHealth.
func (s *endpoints) writeEndpoint(
	ctx context.Context, tx pgx.Tx, tenant string, e asyncflow.Endpoint,
) error {
	_, err := tx.Exec(ctx,
		`UPDATE `+config.EndpointsOf(tenant)+`
			SET url = $2, weight = $3, outbound = $4, challenged = $5,
		  verified_at = $6, verification_error = $7, updated_at = $8,
		  max_in_flight = nullif($9, 0), rate = nullif($10, ''),
		  batch_max_tasks = nullif($11, 0), batch_max_wait = nullif($12, '0'::interval),
		  batch_max_wait_text = nullif($13, '0s')
		WHERE id = $1::uuid`,
		e.ID, e.URL, e.Weight, e.Outbound, e.Challenged, postgres.OrNull(e.VerifiedAt),
		e.VerificationError, e.UpdatedAt, e.Limits.MaxInFlight, e.Limits.Rate.String(),
		e.Batch.MaxTasks,
		e.Batch.MaxWait.Std(), e.Batch.MaxWait.Text())
	if err == nil && e.Health == (asyncflow.Health{}) {
		err = s.clearHealth(ctx, tx, tenant, e.ID)
	}
	if err != nil {
		return err
	}
	return writeSecrets(ctx, tx, tenant, e)
}

// checkDuplicate refuses an endpoint if another one of its stage has the same URL:
// CodeConflict, with the id of the oldest one. Its worker would get deliveries with several
// secrets.
func (s *base) checkDuplicate(
	ctx context.Context, tx pgx.Tx, tenant string, e asyncflow.Endpoint,
) error {
	if e.AllowDuplicate || e.Listens() {
		return nil
	}
	if err := s.lockTenant(ctx, tx, tenant); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, `SELECT id::text, url FROM `+config.EndpointsOf(tenant)+`
		WHERE type = $1 AND stage = $2 AND id <> $3::uuid ORDER BY created_at, id`, e.Type, e.Stage,
		e.ID)
	var first, id, url string
	_, err := pgx.ForEachRow(rows, []any{&id, &url}, func() error {
		if first == "" && asyncflow.SameURL(url, e.URL) {
			first = id
		}
		return nil
	})
	if err != nil || first == "" {
		return err
	}
	return &asyncflow.Error{
		Code: asyncflow.CodeConflict,
		Message: "the endpoint " + first + " of " + e.Type + "/" + e.Stage +
			" has this URL already: its worker would get deliveries with two secrets. " +
			"Change that one, or set allow_duplicate",
		Fields: []asyncflow.FieldError{{Field: "url", Message: "is that of the endpoint " + first}},
	}
}

// DeleteEndpoint deletes an endpoint; CodeNotFound when there is none.
func (s *endpoints) DeleteEndpoint(ctx context.Context, tenant, id string) error {
	err := audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		old, err := lockEndpoint(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		err = audit.CheckPrecondition(ctx, config.EndpointETag(old), false)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM `+config.EndpointsOf(tenant)+` WHERE id = $1::uuid`, id)
		return err
	})
	return postgres.Wrap(err, "DeleteEndpoint(%q, %q)", tenant, id)
}

func unknownEndpoint(id string) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no endpoint %q", id)
}
