package counts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

const (
	// MinutesEvery is how often a node adds its counts to the minutes.
	MinutesEvery = 10 * time.Second
	// MinutesKept is how long minutes are kept.
	MinutesKept = time.Hour
)

// endpointMinutes counts this node's attempts at endpoints since the last write. An endpoint in
// use costs a row a minute, however many nodes there are.
type endpointMinutes struct {
	mu     sync.Mutex
	counts map[endpointKey]*EndpointCounts
}

type endpointKey struct{ tenant, id string }

func newEndpointMinutes() *endpointMinutes {
	return &endpointMinutes{counts: map[endpointKey]*EndpointCounts{}}
}

// EndpointCounts are counts of the attempts at an endpoint.
type EndpointCounts struct {
	Failing
	Codes     [asyncflow.FailureCodes]int64 // of the failures
	Latencies asyncflow.Latencies
}

// CountAttempt counts an attempt for its endpoint. The first one after a write takes a kilobyte.
func (s *Counts) CountAttempt(d *asyncflow.Delivery, o asyncflow.Outcome) {
	m := s.minutes
	m.mu.Lock()
	defer m.mu.Unlock()
	key := endpointKey{d.Tenant, d.Endpoint.ID}
	c := m.counts[key]
	if c == nil {
		c = &EndpointCounts{}
		m.counts[key] = c
	}
	c.Attempts++
	c.Latencies.Add(o.Duration)
	if o.EndpointFailed() {
		c.Failures++
		c.Codes[o.EndpointFailure()]++
	}
}

// read returns the counts by tenant, and starts again from zero.
func (m *endpointMinutes) read() map[string]map[string]*EndpointCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	tenants := map[string]map[string]*EndpointCounts{}
	for key, c := range m.counts {
		if tenants[key.tenant] == nil {
			tenants[key.tenant] = map[string]*EndpointCounts{}
		}
		tenants[key.tenant][key.id] = c
	}
	clear(m.counts)
	return tenants
}

// writeMinutesSQL adds counts to the row of a minute, in {schema}.
const writeMinutesSQL = `
INSERT INTO {schema}.endpoint_minutes AS m (endpoint, at, attempts, failures, codes, latencies)
SELECT e.id, $6::timestamptz, n.attempts, n.failures, string_to_array(n.codes, ',')::int[],
  string_to_array(n.latencies, ',')::int[]
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])
    n (id, attempts, failures, codes, latencies)
  JOIN {schema}.endpoints e ON e.id = n.id ORDER BY 1
ON CONFLICT (endpoint, at) DO UPDATE SET attempts = m.attempts + excluded.attempts,
  failures = m.failures + excluded.failures,
  codes = ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0)
    FROM unnest(m.codes, excluded.codes) WITH ORDINALITY u (a, b, i) ORDER BY i),
  latencies = ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0)
    FROM unnest(m.latencies, excluded.latencies) WITH ORDINALITY u (a, b, i) ORDER BY i)`

// WriteMinutes adds the counts of endpoints and types to the present minute. Counts that can't be
// written are lost:
// they are statistics, not tasks.
func WriteMinutes(ctx context.Context, s *Counts) error {
	var errs []error
	for tenant, counts := range s.minutes.read() {
		// All nodes lock rows in the same order.
		ids := slices.Sorted(maps.Keys(counts))
		attempts := make([]int64, len(ids))
		failures := make([]int64, len(ids))
		codes := make([]string, len(ids))
		latencies := make([]string, len(ids))
		for i, id := range ids {
			c := counts[id]
			attempts[i] = c.Attempts
			failures[i] = c.Failures
			codes[i] = listText(c.Codes[:])
			latencies[i] = listText(c.Latencies[:])
		}
		_, err := s.core.DB(tenant).Exec(ctx,
			strings.ReplaceAll(writeMinutesSQL, "{schema}", postgres.Quote(schema.Of(tenant))),
			ids, attempts, failures, codes, latencies, s.core.Clock.Now().Truncate(time.Minute))
		// The endpoint, or its tenant, was deleted.
		if state := postgres.State(err); state == pgerrcode.ForeignKeyViolation ||
			state == pgerrcode.InvalidSchemaName || state == pgerrcode.UndefinedTable {
			continue
		}
		errs = append(errs, postgres.Wrap(err, "write the minutes of tenant %q", tenant))
	}
	return errors.Join(append(errs, s.writeTimes(ctx)...)...)
}

// listText returns counts, separated by commas, without the zeros at the end.
func listText(counts []int64) string {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	var text []byte
	for i, n := range counts {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

// ForgetMinutes deletes a tenant's minutes that are older than MinutesKept, and returns how many
// it deleted.
func (s *Counts) ForgetMinutes(ctx context.Context, tenant string) (n int, err error) {
	for _, table := range minuteTables {
		tag, err := s.core.DB(tenant).Exec(ctx,
			`DELETE FROM `+postgres.Quote(schema.Of(tenant))+`.`+table+` WHERE at < $1`,
			s.core.Clock.Now().Add(-MinutesKept))
		if err != nil {
			return n, postgres.Wrap(err, "ForgetMinutes(%q)", tenant)
		}
		n += int(tag.RowsAffected())
	}
	return n, nil
}

// minuteTables have a row for each minute in which something was counted.
var minuteTables = []string{"endpoint_minutes", "type_minutes"}

// DryRunForgetMinutes counts the minutes that ForgetMinutes would delete.
func (s *Counts) DryRunForgetMinutes(ctx context.Context, tenant string) (int, error) {
	schema := postgres.Quote(schema.Of(tenant))
	return postgres.CountRows(ctx, s.core.DB(tenant),
		`SELECT (SELECT count(*) FROM `+schema+`.endpoint_minutes WHERE at < $1)
		  + (SELECT count(*) FROM `+schema+`.type_minutes WHERE at < $1)`,
		s.core.Clock.Now().Add(-MinutesKept))
}
