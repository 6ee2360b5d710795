package settings

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// SetHealth changes the health of an endpoint for all nodes, if it is still from. It reports
// whether it was.
func (s *endpoints) SetHealth(
	ctx context.Context, tenant, endpoint string, from, to asyncflow.Health,
) (set bool, err error) {
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		var exists bool
		err := tx.QueryRow(ctx,
			`SELECT true FROM `+postgres.Quote(schema.Of(tenant))+
				`.endpoints WHERE id = $1::uuid FOR UPDATE`, endpoint).Scan(&exists)
		if err != nil {
			return err
		}
		var since time.Time
		err = tx.QueryRow(ctx, `SELECT since FROM `+config.HealthOf(tenant)+
			` WHERE endpoint = $1::uuid`,
			endpoint).Scan(&since)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || !since.Equal(from.Since) {
			return postgres.FirstError(err, postgres.ErrSame)
		}
		set = true
		_, err = tx.Exec(ctx,
			`INSERT INTO `+config.HealthOf(tenant)+` (endpoint, state, since, until, pause, reason)
				VALUES ($1::uuid, $2, $3, $4, $5, $6)
			ON CONFLICT (endpoint) DO UPDATE SET state = $2, since = $3, until = $4, pause = $5,
			  reason = $6`,
			endpoint, string(to.State), to.Since.Truncate(time.Microsecond),
			postgres.OrNull(to.Until),
			to.Pause, to.Reason)
		if err != nil {
			return err
		}
		return recordHealth(ctx, tx, tenant, endpoint, to)
	})
	// The endpoint was deleted, or another node was first.
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, postgres.ErrSame) {
		return false, nil
	}
	return set && err == nil, postgres.Wrap(err, "SetHealth(%q, %q)", tenant, endpoint)
}

// EnableEndpoint closes the circuit breaker of an endpoint that gets no deliveries, and returns
// the endpoint with its state before. It does nothing if the circuit breaker is closed.
func (s *endpoints) EnableEndpoint(
	ctx context.Context, tenant, id string,
) (e asyncflow.Endpoint, was asyncflow.HealthState, err error) {
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		e, err = lockEndpoint(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if was = e.Health.At(s.core.Clock.Now()); was == asyncflow.HealthClosed {
			return postgres.ErrSame
		}
		e.Health = asyncflow.Health{}
		return s.clearHealth(ctx, tx, tenant, id)
	})
	if errors.Is(err, postgres.ErrSame) {
		err = nil
	}
	return e, was, postgres.Wrap(err, "EnableEndpoint(%q, %q)", tenant, id)
}

// clearHealth closes the circuit breaker of an endpoint, as if it had never failed.
func (s *endpoints) clearHealth(ctx context.Context, tx pgx.Tx, tenant, endpoint string) error {
	tag, err := tx.Exec(ctx, `DELETE FROM `+config.HealthOf(tenant)+` WHERE endpoint = $1::uuid`,
		endpoint)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return recordHealth(ctx, tx, tenant, endpoint,
		asyncflow.Health{State: asyncflow.HealthClosed, Since: s.core.Clock.Now()})
}
