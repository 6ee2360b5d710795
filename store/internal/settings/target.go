package settings

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// CreateTarget creates a target of on_final with its endpoint, unless it exists. The endpoint has
// its ID, URL, Secrets and Challenged; its type is the name of the target. With MaxTargets others
// it is CodeQuota.
func (s *endpoints) CreateTarget(
	ctx context.Context, tenant, origin string, e asyncflow.Endpoint,
) (created bool, err error) {
	ctx = audit.WithoutPrecondition(ctx)
	now := s.core.Clock.Now()
	e.Stage = asyncflow.TargetStage
	e.Weight = asyncflow.DefaultWeight
	e.CreatedAt = now
	if err := s.core.CheckKnown(ctx, asyncflow.NewTarget(e.Type, origin).Uses()); err != nil {
		return false, err
	}
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		_, err := config.ReadTaskType(ctx, tx, tenant, e.Type, "FOR SHARE")
		if asyncflow.CodeOf(err) != asyncflow.CodeNotFound {
			created = false
			return err
		}
		created = true
		_, _, err = writeTaskType(ctx, tx, tenant, asyncflow.NewTarget(e.Type, origin), now)
		if err != nil {
			return err
		}
		if err := insertTargetEndpoint(ctx, tx, tenant, e); err != nil {
			return err
		}
		return s.boundTargets(ctx, tx, tenant)
	})
	// Another call has just created it, or another type: the first one also makes the tables.
	if state := postgres.State(err); state == pgerrcode.DuplicateTable ||
		state == pgerrcode.UniqueViolation {
		return s.CreateTarget(ctx, tenant, origin, e)
	}
	return created, postgres.Wrap(err, "CreateTarget(%q, %q)", tenant, e.Type)
}

func insertTargetEndpoint(
	ctx context.Context, tx pgx.Tx, tenant string, e asyncflow.Endpoint,
) error {
	_, err := tx.Exec(ctx, `INSERT INTO `+config.EndpointsOf(tenant)+`
		(id, type, stage, url, weight, challenged, created_at, updated_at)
		VALUES ($1::uuid, $2, $3, $4, $5, $6, $7, $7)`,
		e.ID, e.Type, e.Stage, e.URL, e.Weight, e.Challenged, e.CreatedAt)
	if err != nil {
		return err
	}
	return writeSecrets(ctx, tx, tenant, e)
}

// boundTargets refuses a new target beyond MaxTargets. The tenant's row is locked, so that changes
// at the same time come one after the other.
func (s *endpoints) boundTargets(ctx context.Context, tx pgx.Tx, tenant string) error {
	if err := s.lockTenant(ctx, tx, tenant); err != nil {
		return err
	}
	var n int
	err := tx.QueryRow(ctx, `SELECT count(*) FROM `+postgres.Quote(schema.Of(tenant))+`.task_types
		WHERE starts_with(name, $1)`, asyncflow.TargetPrefix).Scan(&n)
	if err != nil || n <= asyncflow.MaxTargets {
		return err
	}
	return asyncflow.TooManyTargets()
}
