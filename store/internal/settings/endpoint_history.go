package settings

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

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
func (s *endpoints) EndpointHistory(
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

func (s *endpoints) healthChanges(
	ctx context.Context, tenant, id string,
) ([]asyncflow.Health, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, `SELECT at, state, until, reason
		FROM `+changesOf(tenant)+` WHERE endpoint = $1::uuid ORDER BY at`, id)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h asyncflow.Health, err error) {
		var until *time.Time
		err = row.Scan(&h.Since, &h.State, &until, &h.Reason)
		h.Until = postgres.OrZero(until)
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
		endpoint, to.Since.Truncate(time.Microsecond), string(to.State), postgres.OrNull(to.Until),
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
func (s *endpoints) endpointInFlight(
	ctx context.Context, tenant string, e asyncflow.Endpoint, now time.Time,
) (*int, error) {
	t, err := s.core.Catalog.Fresh(ctx, tenant, e.Type)
	if err != nil || !t.Limited(now) {
		return nil, err
	}
	n, err := postgres.CountRows(ctx, s.core.DB(tenant),
		t.SQL(0, `SELECT count(*) FROM {lease} WHERE type = $1 AND endpoint = $2::uuid`),
		t.Number(),
		e.ID)
	return &n, err
}
