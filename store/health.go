package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

func healthOf(tenant string) string { return quote(schemaOf(tenant)) + ".endpoint_health" }

// SetHealth writes the health of an endpoint for all nodes, if it is still what this
// node takes it for. It tells whether it was.
func (s *Store) SetHealth(ctx context.Context, tenant, endpoint string, from, to asyncflow.Health) (set bool, err error) {
	err = s.change(ctx, tenant, func(tx pgx.Tx) error {
		var exists bool
		err := tx.QueryRow(ctx, `SELECT true FROM `+quote(schemaOf(tenant))+`.endpoints WHERE id = $1::uuid FOR UPDATE`, endpoint).Scan(&exists)
		if err != nil {
			return err
		}
		var since time.Time
		err = tx.QueryRow(ctx, `SELECT since FROM `+healthOf(tenant)+` WHERE endpoint = $1::uuid`, endpoint).Scan(&since)
		if err != nil && err != pgx.ErrNoRows || !since.Equal(from.Since) {
			return firstError(err, errSame)
		}
		set = true
		_, err = tx.Exec(ctx, `INSERT INTO `+healthOf(tenant)+` (endpoint, state, since, until, pause, reason) VALUES ($1::uuid, $2, $3, $4, $5, $6)
			ON CONFLICT (endpoint) DO UPDATE SET state = $2, since = $3, until = $4, pause = $5, reason = $6`,
			endpoint, string(to.State), to.Since.Truncate(time.Microsecond), orNull(to.Until), to.Pause, to.Reason)
		return err
	})
	if err == pgx.ErrNoRows || err == errSame { // it was deleted, or another node was first
		return false, nil
	}
	return set && err == nil, wrap(err, "SetHealth(%q, %q)", tenant, endpoint)
}

// readHealth fills in the health and the limits of a tenant's endpoints.
func (s *Store) readHealth(ctx context.Context, tenant string, endpoints []asyncflow.Endpoint) error {
	byID := make(map[string]*asyncflow.Endpoint, len(endpoints))
	for i := range endpoints {
		byID[endpoints[i].ID] = &endpoints[i]
	}
	rows, err := s.of(tenant).Query(ctx, `SELECT e.id::text, coalesce(e.max_in_flight, 0), coalesce(e.rate, ''),
		  coalesce(h.state, ''), h.since, h.until, coalesce(h.pause, '0'), coalesce(h.reason, '')
		FROM `+quote(schemaOf(tenant))+`.endpoints e LEFT JOIN `+healthOf(tenant)+` h ON h.endpoint = e.id
		WHERE e.max_in_flight IS NOT NULL OR e.rate IS NOT NULL OR h.state IS NOT NULL`)
	if err != nil {
		return err
	}
	var id, rate string
	var most int
	var h asyncflow.Health
	var since, until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &most, &rate, &h.State, &since, &until, &h.Pause, &h.Reason}, func() error {
		e := byID[id]
		if e == nil {
			return nil
		}
		e.Limits.MaxInFlight = most
		e.Health = h
		e.Health.Since, e.Health.Until = orZero(since), orZero(until)
		if rate == "" {
			return nil
		}
		return e.Limits.Rate.UnmarshalText([]byte(rate))
	})
	return err
}
