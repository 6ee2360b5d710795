package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// part is what has points: a type as a whole, or a stage of it. Without a type it is all types of
// the tenant.
type part struct{ taskType, stage string }

// gathered are the points of some parts, by their times.
type gathered map[part]map[time.Time]Values

// values returns the values of a part at a time, to be added to.
func (g gathered) values(p part, at time.Time) Values {
	at = at.UTC()
	if g[p] == nil {
		g[p] = map[time.Time]Values{}
	}
	if g[p][at] == nil {
		g[p][at] = Values{}
	}
	return g[p][at]
}

// addTotals adds the points of all types together.
func (g gathered) addTotals() {
	for p, points := range g {
		if p == (part{}) {
			continue
		}
		for at, v := range points {
			g.values(part{}, at).add(v)
		}
	}
}

// talliesSQL adds up the tallies between $1 and $2 by the interval $3. Fold adds up rows of the
// same minute, and later of the same hour, so the sums are the same before and after.
const talliesSQL = `
SELECT type, date_bin($3, at, timestamptz '2000-01-01 00:00Z'), sum(submitted)::bigint,
  sum(attempts)::bigint, sum(failures)::bigint, sum(snoozes)::bigint,
  sum(greatest(succeeded, 0))::bigint, sum(greatest(failed, 0))::bigint,
  sum(greatest(cancelled, 0))::bigint,
  sum(greatest(-failed, 0) + greatest(-cancelled, 0))::bigint
FROM {schema}.tallies WHERE at >= $1 AND at < $2 GROUP BY 1, 2`

// tallies adds what was counted between two times to g, by a unit.
func tallies(
	ctx context.Context, q postgres.Querier, tenant string, g gathered, u unit,
	from, until time.Time,
) error {
	rows, err := q.Query(ctx, fill(tenant, talliesSQL), from, until, u.point)
	if err != nil {
		return err
	}
	var name string
	var at time.Time
	var n [8]int64 // in the order of the fields
	_, err = pgx.ForEachRow(rows, []any{&name, &at, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5],
		&n[6], &n[7]}, func() error {
		v := g.values(part{name, ""}, at)
		for i, count := range n {
			v.count(Submitted+Field(i), count)
		}
		return nil
	})
	return err
}

// stageTimesSQL reads how long tasks were due, and how long attempts took, between $1 and $2.
const stageTimesSQL = `
SELECT type, stage, at, latencies, NULL::int[], attempts, (busy * 1000)::bigint
FROM {schema}.type_minutes WHERE at >= $1 AND at < $2 AND stage <> ''
UNION ALL
SELECT e.type, e.stage, m.at, NULL, m.latencies, 0, 0
FROM {schema}.endpoint_minutes m JOIN {schema}.endpoints e ON e.id = m.endpoint
WHERE m.at >= $1 AND m.at < $2`

// stageTimes adds the times of stages between two times to g, by minute.
func stageTimes(
	ctx context.Context, q postgres.Querier, tenant string, g gathered, from, until time.Time,
) error {
	rows, err := q.Query(ctx, fill(tenant, stageTimesSQL), from, until)
	if err != nil {
		return err
	}
	var p part
	var at time.Time
	var waits, took []int64
	var ended, busy int64
	_, err = pgx.ForEachRow(rows, []any{&p.taskType, &p.stage, &at, &waits, &took, &ended, &busy},
		func() error {
			v := g.values(p, at)
			v.countTimes(firstWait, waits)
			v.countTimes(firstDuration, took)
			v.count(Ended, ended)
			v.count(Busy, busy)
			return nil
		})
	return err
}

// gauges adds how many tasks of each type are live now to g. A type without due, pending or running
// tasks is idle, and left out. live reports whether any type isn't.
func (s *History) gauges(
	ctx context.Context, tenant string, g gathered, at time.Time,
) (live bool, due dueTasks, err error) {
	all, err := counts.Gauges(ctx, s.counts, tenant)
	for _, t := range all {
		if t.Pending+t.Running == 0 && len(t.Backlog) == 0 {
			continue
		}
		live = true
		v := g.values(part{t.Type, ""}, at.Truncate(time.Minute))
		v.count(Pending, t.Pending)
		v.count(Waiting, t.Waiting)
		v.count(Running, t.Running)
		for _, b := range t.Backlog {
			due.add(b)
			for i, why := range reasons {
				if why == b.WaitsFor {
					v.count(firstReason+Field(i), b.Tasks)
				}
			}
		}
	}
	return live, due, err
}

// dueTasks are the due tasks of a tenant that are not under way and don't wait for other tasks.
type dueTasks struct {
	n      int64
	oldest time.Time // since when the oldest of them has been due
}

func (d *dueTasks) add(b counts.Backlog) {
	if b.WaitsFor.ForOthers() {
		return
	}
	d.n += b.Tasks
	if !b.Oldest.IsZero() && (d.oldest.IsZero() || b.Oldest.Before(d.oldest)) {
		d.oldest = b.Oldest
	}
}
