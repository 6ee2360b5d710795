package counts

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// EndpointFailing counts the attempts at an endpoint, and the failed ones.
type EndpointFailing struct {
	asyncflow.Endpoint // ID, Type and Stage
	Failing
}

// EndpointFailures adds up the attempts at a tenant's endpoints since a time, to the minute.
func (s *Counts) EndpointFailures(
	ctx context.Context, tenant string, since time.Time,
) ([]EndpointFailing, error) {
	schema := postgres.Quote(schema.Of(tenant))
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT e.id::text, e.type, e.stage, sum(m.attempts)::bigint, sum(m.failures)::bigint
		FROM `+schema+`.endpoint_minutes m JOIN `+schema+`.endpoints e ON e.id = m.endpoint
		WHERE m.at > $1 GROUP BY e.id`, since)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f EndpointFailing, err error) {
		return f, row.Scan(&f.ID, &f.Type, &f.Stage, &f.Attempts, &f.Failures)
	})
	slices.SortFunc(all, func(a, b EndpointFailing) int { return cmp.Compare(a.ID, b.ID) })
	return all, postgres.Wrap(err, "EndpointFailures(%q)", tenant)
}

// EndpointCounts adds up the attempts at some of a tenant's endpoints since a time, to the minute.
// Endpoints without any are left out.
func (s *Counts) EndpointCounts(
	ctx context.Context, tenant string, ids []string, since time.Time,
) (map[string]EndpointCounts, error) {
	all := map[string]EndpointCounts{}
	err := EachMinute(ctx, s, tenant, ids, since, func(id string, m EndpointMinute) {
		sum := all[id]
		sum.add(&m.EndpointCounts)
		all[id] = sum
	})
	return all, postgres.Wrap(err, "EndpointCounts(%q)", tenant)
}

func (c *EndpointCounts) add(more *EndpointCounts) {
	c.Attempts += more.Attempts
	c.Failures += more.Failures
	addCounts(c.Codes[:], more.Codes[:])
	addCounts(c.Latencies[:], more.Latencies[:])
}

// EndpointMinute are the counts of an endpoint in a minute.
type EndpointMinute struct {
	At time.Time // when it began
	EndpointCounts
}

// EachMinute calls do with the minutes of some endpoints after a time, oldest first.
func EachMinute(
	ctx context.Context, s *Counts, tenant string, ids []string, since time.Time,
	do func(id string, m EndpointMinute),
) error {
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT endpoint::text, at, attempts, failures, codes, latencies
		FROM `+postgres.Quote(schema.Of(tenant))+`.endpoint_minutes
		WHERE endpoint = ANY ($1::uuid[]) AND at > $2 ORDER BY at`, ids, since)
	var id string
	var m EndpointMinute
	var codes, latencies []int64
	_, err := pgx.ForEachRow(rows,
		[]any{&id, &m.At, &m.Attempts, &m.Failures, &codes, &latencies}, func() error {
			m.Codes = [asyncflow.FailureCodes]int64{}
			m.Latencies = asyncflow.Latencies{}
			addCounts(m.Codes[:], codes)
			addCounts(m.Latencies[:], latencies)
			do(id, m)
			return nil
		})
	return err
}

// typeLatencies returns how long the attempts of a tenant's types, or of one unless taskType is "",
// took since a time, to the minute. Types without any are left out, and cost nothing.
func (s *Counts) typeLatencies(
	ctx context.Context, tenant, taskType string, since time.Time,
) (map[string]asyncflow.Latency, error) {
	schema := postgres.Quote(schema.Of(tenant))
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT e.type, m.latencies
		FROM `+schema+`.endpoint_minutes m JOIN `+schema+`.endpoints e ON e.id = m.endpoint
		WHERE m.at > $1 AND $2 IN ('', e.type)`, since, taskType)
	sums, err := sumLatencies(rows)
	all := make(map[string]asyncflow.Latency, len(sums))
	for name, sum := range sums {
		all[name] = sum.Summary()
	}
	return all, err
}

// sumLatencies adds up rows with a name and latencies, by the names.
func sumLatencies(rows pgx.Rows) (map[string]*asyncflow.Latencies, error) {
	sums := map[string]*asyncflow.Latencies{}
	var name string
	var counts []int64
	_, err := pgx.ForEachRow(rows, []any{&name, &counts}, func() error {
		if sums[name] == nil {
			sums[name] = &asyncflow.Latencies{}
		}
		addCounts(sums[name][:], counts)
		return nil
	})
	return sums, err
}

// addCounts adds counts to the counts in to. A newer version may know more of them.
func addCounts(to, counts []int64) {
	for i := range min(len(to), len(counts)) {
		to[i] += counts[i]
	}
}

// Failing counts the attempts of a type, and the failed ones.
type Failing struct{ Attempts, Failures int64 }
