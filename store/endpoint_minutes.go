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
	// minutesEvery is how often a node adds what it has counted to the minutes.
	minutesEvery = 5 * time.Second
	// MinutesKept is how long minutes are kept.
	MinutesKept = time.Hour
)

// endpointMinutes counts how this node's attempts at endpoints went, until it is
// written. An endpoint in use costs a row a minute, however many nodes there are.
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

// take returns what was counted, by tenant, and begins anew.
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

// writeMinutes adds what was counted to the minute that it is. What can't be written is
// lost: it is a figure, not a task.
func (s *Store) writeMinutes(ctx context.Context) error {
	var errs []error
	for tenant, counts := range s.minutes.take() {
		ids := make([]string, 0, len(counts))
		for id := range counts {
			ids = append(ids, id)
		}
		slices.Sort(ids) // rows are locked in one order
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
		// the endpoint, or its tenant, was deleted
		if state := sqlState(err); state == pgerrcode.ForeignKeyViolation ||
			state == pgerrcode.InvalidSchemaName || state == pgerrcode.UndefinedTable {
			continue
		}
		errs = append(errs, wrap(err, "write the minutes of tenant %q", tenant))
	}
	return errors.Join(errs...)
}

// EndpointFailing is how the attempts at an endpoint went.
type EndpointFailing struct {
	asyncflow.Endpoint // ID, Type and Stage
	Failing
}

// EndpointFailures adds up the attempts at a tenant's endpoints since a time, to a
// minute.
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

// ForgetMinutes deletes a tenant's minutes that are over for an hour, and returns how
// many there were.
func (s *Store) ForgetMinutes(ctx context.Context, tenant string) (int, error) {
	tag, err := s.of(tenant).Exec(ctx,
		`DELETE FROM `+quote(schemaOf(tenant))+`.endpoint_minutes WHERE at < $1`,
		s.Clock.Now().Add(-MinutesKept))
	return int(tag.RowsAffected()), wrap(err, "ForgetMinutes(%q)", tenant)
}

// LookForgetMinutes counts them.
func (s *Store) LookForgetMinutes(ctx context.Context, tenant string) (int, error) {
	return countRows(ctx, s.of(tenant),
		`SELECT count(*) FROM `+quote(schemaOf(tenant))+`.endpoint_minutes WHERE at < $1`,
		s.Clock.Now().Add(-MinutesKept))
}
