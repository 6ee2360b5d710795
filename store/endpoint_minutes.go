package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

const (
	// minutesEvery is how often a node adds its counts to the minutes.
	minutesEvery = 5 * time.Second
	// MinutesKept is how long minutes are kept.
	MinutesKept = time.Hour
)

// endpointMinutes counts this node's attempts at endpoints since the last write. An endpoint in
// use costs a row a minute, however many nodes there are.
type endpointMinutes struct {
	mu     sync.Mutex
	counts map[endpointKey]*Failing
}

type endpointKey struct{ tenant, id string }

func newEndpointMinutes() *endpointMinutes {
	return &endpointMinutes{counts: map[endpointKey]*Failing{}}
}

// CountAttempt counts an attempt for its endpoint.
func (s *Store) CountAttempt(d *asyncflow.Delivery, o asyncflow.Outcome) {
	m := s.minutes
	m.mu.Lock()
	defer m.mu.Unlock()
	key := endpointKey{d.Tenant, d.Endpoint.ID}
	c := m.counts[key]
	if c == nil {
		c = &Failing{}
		m.counts[key] = c
	}
	c.Attempts++
	if o.EndpointFailed() {
		c.Failures++
	}
}

// take returns the counts by tenant, and starts again from zero.
func (m *endpointMinutes) take() map[string]map[string]*Failing {
	m.mu.Lock()
	defer m.mu.Unlock()
	tenants := map[string]map[string]*Failing{}
	for key, c := range m.counts {
		if tenants[key.tenant] == nil {
			tenants[key.tenant] = map[string]*Failing{}
		}
		tenants[key.tenant][key.id] = c
	}
	clear(m.counts)
	return tenants
}

// writeMinutes adds the counts to the present minute. Counts that can't be written are lost:
// they are statistics, not tasks.
func (s *Store) writeMinutes(ctx context.Context) error {
	var errs []error
	for tenant, counts := range s.minutes.take() {
		ids := make([]string, 0, len(counts))
		for id := range counts {
			ids = append(ids, id)
		}
		slices.Sort(ids) // so that all nodes lock rows in the same order
		attempts, failures := make([]int64, len(ids)), make([]int64, len(ids))
		for i, id := range ids {
			attempts[i], failures[i] = counts[id].Attempts, counts[id].Failures
		}
		schema := quote(schemaOf(tenant))
		_, err := s.of(tenant).Exec(ctx,
			`INSERT INTO `+schema+`.endpoint_minutes AS m (endpoint, at, attempts, failures)
			SELECT e.id, date_trunc('minute', $4::timestamptz), n.attempts, n.failures
			FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) n (id, attempts, failures)
			JOIN `+schema+`.endpoints e USING (id) ORDER BY 1
			ON CONFLICT (endpoint, at) DO UPDATE SET attempts = m.attempts + excluded.attempts,
			  failures = m.failures + excluded.failures`,
			ids, attempts, failures, s.Clock.Now())
		// The endpoint, or its tenant, was deleted.
		if state := sqlState(err); state == pgerrcode.ForeignKeyViolation ||
			state == pgerrcode.InvalidSchemaName || state == pgerrcode.UndefinedTable {
			continue
		}
		errs = append(errs, wrap(err, "write the minutes of tenant %q", tenant))
	}
	return errors.Join(errs...)
}

// EndpointFailing counts the attempts at an endpoint, and those that failed.
type EndpointFailing struct {
	asyncflow.Endpoint // ID, Type and Stage
	Failing
}

// EndpointFailures adds up the attempts at a tenant's endpoints since a time, to the minute.
func (s *Store) EndpointFailures(
	ctx context.Context,
	tenant string,
	since time.Time,
) ([]EndpointFailing, error) {
	schema := quote(schemaOf(tenant))
	rows, err := s.of(tenant).Query(ctx,
		`SELECT e.id::text, e.type, e.stage, sum(m.attempts)::bigint, sum(m.failures)::bigint
		FROM `+schema+`.endpoint_minutes m JOIN `+schema+`.endpoints e ON e.id = m.endpoint
		WHERE m.at > $1 GROUP BY e.id`, since)
	if err != nil {
		return nil, wrap(err, "EndpointFailures(%q)", tenant)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f EndpointFailing, err error) {
		return f, row.Scan(&f.ID, &f.Type, &f.Stage, &f.Attempts, &f.Failures)
	})
	slices.SortFunc(all, func(a, b EndpointFailing) int { return cmp.Compare(a.ID, b.ID) })
	return all, wrap(err, "EndpointFailures(%q)", tenant)
}

// ForgetMinutes deletes a tenant's minutes that are older than MinutesKept, and returns how many
// it deleted.
func (s *Store) ForgetMinutes(ctx context.Context, tenant string) (int, error) {
	tag, err := s.of(tenant).Exec(ctx,
		`DELETE FROM `+quote(schemaOf(tenant))+`.endpoint_minutes WHERE at < $1`,
		s.Clock.Now().Add(-MinutesKept))
	return int(tag.RowsAffected()), wrap(err, "ForgetMinutes(%q)", tenant)
}

// DryRunForgetMinutes counts the minutes that ForgetMinutes would delete.
func (s *Store) DryRunForgetMinutes(ctx context.Context, tenant string) (int, error) {
	return countRows(ctx, s.of(tenant),
		`SELECT count(*) FROM `+quote(schemaOf(tenant))+`.endpoint_minutes WHERE at < $1`,
		s.Clock.Now().Add(-MinutesKept))
}
