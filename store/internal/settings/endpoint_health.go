package settings

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// SetHealth changes the health of an endpoint for all nodes, if it is still from. It reports
// whether it was.
func (s *Settings) SetHealth(
	ctx context.Context, tenant, endpoint string, from, to asyncflow.Health,
) (set bool, err error) {
	err = s.core.Change(ctx, tenant, func(tx pgx.Tx) error {
		var exists bool
		err := tx.QueryRow(ctx,
			`SELECT true FROM `+postgres.Quote(schema.Of(tenant))+
				`.endpoints WHERE id = $1::uuid FOR UPDATE`, endpoint).Scan(&exists)
		if err != nil {
			return err
		}
		var since time.Time
		err = tx.QueryRow(ctx, `SELECT since FROM `+catalog.HealthOf(tenant)+` WHERE endpoint = $1::uuid`,
			endpoint).Scan(&since)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || !since.Equal(from.Since) {
			return postgres.FirstError(err, catalog.ErrSame)
		}
		set = true
		_, err = tx.Exec(ctx,
			`INSERT INTO `+catalog.HealthOf(tenant)+` (endpoint, state, since, until, pause, reason)
				VALUES ($1::uuid, $2, $3, $4, $5, $6)
			ON CONFLICT (endpoint) DO UPDATE SET state = $2, since = $3, until = $4, pause = $5,
			  reason = $6`,
			endpoint, string(to.State), to.Since.Truncate(time.Microsecond), catalog.OrNull(to.Until),
			to.Pause, to.Reason)
		if err != nil {
			return err
		}
		return recordHealth(ctx, tx, tenant, endpoint, to)
	})
	// The endpoint was deleted, or another node was first.
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, catalog.ErrSame) {
		return false, nil
	}
	return set && err == nil, postgres.Wrap(err, "SetHealth(%q, %q)", tenant, endpoint)
}

// EnableEndpoint closes the circuit breaker of an endpoint that gets no deliveries, and returns
// the endpoint with its state before. It does nothing if the circuit breaker is closed.
func (s *Settings) EnableEndpoint(
	ctx context.Context, tenant, id string,
) (e asyncflow.Endpoint, was asyncflow.HealthState, err error) {
	err = s.core.Change(ctx, tenant, func(tx pgx.Tx) error {
		all, err := lockEndpoints(ctx, tx, tenant, `id = $1::uuid`, id)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return unknownEndpoint(id)
		}
		e = all[0]
		if was = e.Health.At(s.core.Clock.Now()); was == asyncflow.HealthClosed {
			return catalog.ErrSame
		}
		e.Health = asyncflow.Health{}
		return s.clearHealth(ctx, tx, tenant, id)
	})
	if errors.Is(err, catalog.ErrSame) {
		err = nil
	}
	return e, was, postgres.Wrap(err, "EnableEndpoint(%q, %q)", tenant, id)
}

// clearHealth closes the circuit breaker of an endpoint, as if it had never failed.
func (s *Settings) clearHealth(ctx context.Context, tx pgx.Tx, tenant, endpoint string) error {
	tag, err := tx.Exec(ctx, `DELETE FROM `+catalog.HealthOf(tenant)+` WHERE endpoint = $1::uuid`,
		endpoint)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return recordHealth(ctx, tx, tenant, endpoint,
		asyncflow.Health{State: asyncflow.HealthClosed, Since: s.core.Clock.Now()})
}

const (
	// ChangesKept is how many changes of an endpoint's health are kept.
	ChangesKept = 50
	// changeReasonLength bounds the reasons that are kept with them, in characters.
	changeReasonLength = 200
)

// EndpointHistory is what is known of an endpoint's last hour, and of its health before.
type EndpointHistory struct {
	Minutes []counts.EndpointMinute // with attempts, oldest first
	// Changes are the last changes of its health, oldest first; ChangesKept at most. They have no
	// Pause.
	Changes []asyncflow.Health
	// InFlight is how many tasks are leased for it on all nodes: what its MaxInFlight limits. Nil
	// if it isn't known: leases name an endpoint only if their type is limited.
	InFlight *int
}

// EndpointHistory returns the history of an endpoint; CodeNotFound when there is none.
func (s *Settings) EndpointHistory(
	ctx context.Context, tenant, id string,
) (h EndpointHistory, err error) {
	e, err := s.Endpoint(ctx, tenant, id)
	if err != nil {
		return h, err
	}
	now := s.core.Clock.Now()
	err = counts.EachMinute(ctx, s.counts, tenant, []string{id}, now.Add(-counts.MinutesKept),
		func(_ string, m counts.EndpointMinute) { h.Minutes = append(h.Minutes, m) })
	if err != nil {
		return h, postgres.Wrap(err, "EndpointHistory(%q, %q)", tenant, id)
	}
	h.Changes, err = s.healthChanges(ctx, tenant, id)
	if err != nil {
		return h, postgres.Wrap(err, "EndpointHistory(%q, %q)", tenant, id)
	}
	h.InFlight, err = s.endpointInFlight(ctx, tenant, e, now)
	return h, postgres.Wrap(err, "EndpointHistory(%q, %q)", tenant, id)
}

func changesOf(tenant string) string {
	return postgres.Quote(schema.Of(tenant)) + ".endpoint_changes"
}

func (s *Settings) healthChanges(
	ctx context.Context, tenant, id string,
) ([]asyncflow.Health, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, `SELECT at, state, until, reason
		FROM `+changesOf(tenant)+` WHERE endpoint = $1::uuid ORDER BY at`, id)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h asyncflow.Health, err error) {
		var until *time.Time
		err = row.Scan(&h.Since, &h.State, &until, &h.Reason)
		h.Until = catalog.OrZero(until)
		return h, err
	})
}

// recordHealth adds a change to the history of an endpoint, and forgets the oldest of too many
// changes. The caller has locked the endpoint.
func recordHealth(
	ctx context.Context, tx pgx.Tx, tenant, endpoint string, to asyncflow.Health,
) error {
	_, err := tx.Exec(ctx, `INSERT INTO `+changesOf(tenant)+` (endpoint, at, state, until, reason)
		VALUES ($1::uuid, $2, $3, $4, left($5, $6))
		ON CONFLICT (endpoint, at) DO UPDATE SET state = excluded.state, until = excluded.until,
		  reason = excluded.reason`,
		endpoint, to.Since.Truncate(time.Microsecond), string(to.State), catalog.OrNull(to.Until),
		to.Reason, changeReasonLength)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM `+changesOf(tenant)+` WHERE endpoint = $1::uuid AND at <=
		(SELECT at FROM `+changesOf(tenant)+` WHERE endpoint = $1::uuid
		 ORDER BY at DESC OFFSET $2 LIMIT 1)`, endpoint, ChangesKept)
	return err
}

// endpointInFlight counts the leases for an endpoint. It reads all leases of its type, as each
// lease of a limited type does.
func (s *Settings) endpointInFlight(
	ctx context.Context, tenant string, e asyncflow.Endpoint, now time.Time,
) (*int, error) {
	t, err := s.core.Catalog.Fresh(ctx, tenant, e.Type)
	if err != nil || !t.Limited(now) {
		return nil, err
	}
	n, err := catalog.CountRows(ctx, s.core.DB(tenant),
		t.SQL(0, `SELECT count(*) FROM {lease} WHERE type = $1 AND endpoint = $2::uuid`), t.Number(),
		e.ID)
	return &n, err
}
