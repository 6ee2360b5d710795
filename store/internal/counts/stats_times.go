package counts

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// TypeTimes are how long the tasks of a type waited and took.
type TypeTimes struct {
	// Wait is how long tasks were due until they were started, in all stages.
	Wait asyncflow.Latency
	// StageWaits is the same for each stage with such tasks, by name.
	StageWaits []StageWait
	// Turnaround is how long it took from the submit of tasks to their end.
	Turnaround asyncflow.Latency
	// StageClaims are the claims and votes that led to nothing, for each stage with some, by name.
	StageClaims []StageClaims
}

// StageClaims counts claims and votes that led to nothing in a stage.
type StageClaims struct {
	Stage         string
	LateVotes     int64 // that came after the decision
	ClosedWindows int64 // calls that got no task as the window of their claimer was used up
}

// StageWait is how long tasks were due in a stage until they were started.
type StageWait struct {
	Stage string
	asyncflow.Latency
}

// CountDeliveries counts deliveries of a type that are sent now, by how long their tasks were due.
func (s *Counts) CountDeliveries(key config.TypeKey, all []asyncflow.Delivery) {
	s.core.CountStarted(key, len(all), func(i int) (*asyncflow.Lease, time.Time) {
		return &all[i].Lease, all[i].At
	})
}

// writeTimesSQL adds counts to the rows of a minute, in {schema}. It locks each type before its
// rows, as the deletion of a type does: in another order they could deadlock. It never waits for a
// deletion. Citus takes no function of the time, and no text of an array, beside a table of the
// tenant.
const writeTimesSQL = `
INSERT INTO {schema}.type_minutes AS m
  (type, stage, at, latencies, late_votes, closed_windows, attempts, busy)
SELECT t.name, n.stage, $4::timestamptz, string_to_array(n.latencies, ',')::int[], n.late, n.closed,
  n.attempts, n.busy
FROM unnest($1::text[], $2::text[], $3::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::float8[]) n (name, stage, latencies, late, closed, attempts, busy)
  JOIN {schema}.task_types t ON t.name = n.name ORDER BY 1, 2
FOR KEY SHARE OF t SKIP LOCKED
ON CONFLICT (type, stage, at) DO UPDATE SET late_votes = m.late_votes + excluded.late_votes,
  closed_windows = m.closed_windows + excluded.closed_windows,
  attempts = m.attempts + excluded.attempts, busy = m.busy + excluded.busy,
  latencies = ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0)
    FROM unnest(m.latencies, excluded.latencies) WITH ORDINALITY u (a, b, i) ORDER BY i)`

// writeTimes adds what this node counted to the present minute of each type.
func (s *Counts) writeTimes(ctx context.Context) (errs []error) {
	byTenant := map[string][]catalog.TimesKey{}
	counts := s.core.Times.Take()
	for key := range counts {
		byTenant[key.Tenant] = append(byTenant[key.Tenant], key)
	}
	for tenant, keys := range byTenant {
		slices.SortFunc(keys, func(a, b catalog.TimesKey) int { // as all nodes lock rows
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Stage, b.Stage))
		})
		names := make([]string, len(keys))
		stages := make([]string, len(keys))
		latencies := make([]string, len(keys))
		late := make([]int64, len(keys))
		closed := make([]int64, len(keys))
		attempts := make([]int64, len(keys))
		busy := make([]float64, len(keys))
		for i, key := range keys {
			names[i] = key.Type
			stages[i] = key.Stage
			c := counts[key]
			latencies[i] = listText(c.Latencies[:])
			late[i] = c.LateVotes
			closed[i] = c.ClosedWindows
			attempts[i] = c.Attempts
			busy[i] = c.Busy.Seconds()
		}
		_, err := s.core.DB(tenant).Exec(ctx,
			strings.ReplaceAll(writeTimesSQL, "{schema}", postgres.Quote(schema.Of(tenant))),
			names, stages, latencies, s.core.Clock.Now().Truncate(time.Minute), late, closed,
			attempts, busy)
		// The type, or its tenant, was deleted.
		if state := postgres.State(err); state == pgerrcode.ForeignKeyViolation ||
			state == pgerrcode.InvalidSchemaName || state == pgerrcode.UndefinedTable {
			continue
		}
		errs = append(errs, postgres.Wrap(err, "write the times of tenant %q", tenant))
	}
	return errs
}

// typeTimes returns how long the tasks of a tenant's types, or of one unless taskType is "", waited
// and took since a time, to the minute. Types without any are left out.
func (s *Counts) typeTimes(
	ctx context.Context, tenant, taskType string, since time.Time,
) (map[string]TypeTimes, error) {
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT type, stage, latencies, late_votes, closed_windows
		FROM `+postgres.Quote(schema.Of(tenant))+`.type_minutes
		WHERE at > $1 AND $2 IN ('', type)`, since, taskType)
	sums := map[string]map[string]*catalog.TimesCounts{} // by type and stage
	var name, stage string
	var late, closed int64
	var latencies []int64
	_, err := pgx.ForEachRow(rows, []any{&name, &stage, &latencies, &late, &closed}, func() error {
		if sums[name] == nil {
			sums[name] = map[string]*catalog.TimesCounts{}
		}
		sum := sums[name][stage]
		if sum == nil {
			sum = &catalog.TimesCounts{}
			sums[name][stage] = sum
		}
		addCounts(sum.Latencies[:], latencies)
		sum.LateVotes += late
		sum.ClosedWindows += closed
		return nil
	})
	all := map[string]TypeTimes{}
	for name, stages := range sums {
		all[name] = timesOf(stages)
	}
	return all, err
}

// StartWaits returns how long the tasks of a tenant's types that were started since a time, to the
// minute, had been due. Types without any are left out. It reads a row of each minute, type and
// stage.
func (s *Counts) StartWaits(
	ctx context.Context, tenant string, since time.Time,
) (map[string]asyncflow.Latency, error) {
	ctx = postgres.Patient(ctx)
	rows, _ := s.core.DB(tenant).Query(ctx, `SELECT type, latencies
		FROM `+postgres.Quote(schema.Of(tenant))+`.type_minutes
		WHERE at >= $1 AND stage <> ''`, since.Truncate(time.Minute))
	sums, err := sumLatencies(rows)
	all := map[string]asyncflow.Latency{}
	for name, sum := range sums {
		if *sum != (asyncflow.Latencies{}) { // it has late votes only
			all[name] = sum.Summary()
		}
	}
	return all, postgres.Wrap(err, "StartWaits(%q)", tenant)
}

// timesOf returns the times of a type by its counts in each stage.
func timesOf(stages map[string]*catalog.TimesCounts) (t TypeTimes) {
	var waits asyncflow.Latencies
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		sum := stages[stage]
		if stage == "" {
			t.Turnaround = sum.Summary()
			continue
		}
		addCounts(waits[:], sum.Latencies[:])
		if sum.Latencies != (asyncflow.Latencies{}) {
			t.StageWaits = append(t.StageWaits, StageWait{stage, sum.Summary()})
		}
		if sum.LateVotes+sum.ClosedWindows > 0 {
			t.StageClaims = append(t.StageClaims,
				StageClaims{stage, sum.LateVotes, sum.ClosedWindows})
		}
	}
	t.Wait = waits.Summary()
	return t
}
