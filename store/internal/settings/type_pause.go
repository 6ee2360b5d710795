package settings

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Pause stops the leases of a task type and returns the type. A type that is already paused
// keeps its time and reason. Once Pause has returned, this node begins no lease of the type;
// other nodes learn of it within about a second.
func (s *types) Pause(
	ctx context.Context, tenant, name, reason string,
) (config.StoredType, error) {
	t, err := s.setPause(ctx, tenant, name, `SET paused_at = $2, pause_reason = nullif($3, '')
		WHERE name = $1 AND paused_at IS NULL`, s.core.Clock.Now(), reason)
	if err != nil {
		return t, err
	}
	// Did the catalog fail to read the change?
	if known, err := s.core.Catalog.Type(tenant, name); err == nil && !known.Paused() &&
		t.Paused() {
		if err := s.core.Catalog.RefreshTenant(ctx, tenant); err != nil {
			return t, &asyncflow.Error{
				Code: asyncflow.CodeUnavailable, RetryAfter: catalog.CatalogRetry, Err: err,
				Message: "the task type is paused, but this node can't read that yet " +
					"and may go on with it; pause it again"}
		}
	}
	return t, nil
}

// Resume starts the leases of a paused task type again, from few to all over the time of the
// ramp, and returns the type. It doesn't change a type that is not paused.
func (s *types) Resume(
	ctx context.Context, tenant, name string, ramp time.Duration,
) (config.StoredType, error) {
	return s.setPause(ctx, tenant, name,
		`SET paused_at = NULL, pause_reason = NULL, resumed_at = $2, ramp_seconds = $3
		WHERE name = $1 AND paused_at IS NOT NULL`, s.core.Clock.Now(), ramp.Seconds())
}

func (s *types) setPause(
	ctx context.Context, tenant, name, set string, args ...any,
) (t config.StoredType, err error) {
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE `+postgres.Quote(schema.Of(tenant))+`.task_types `+set,
			append([]any{name}, args...)...); err != nil {
			return err
		}
		t, err = config.ReadTaskType(ctx, tx, tenant, name, "")
		return err
	})
	return t, postgres.Wrap(err, "setPause(%q, %q)", tenant, name)
}
