package history

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// again is for how long before the last recording minutes are looked at again: for transactions
	// that were committed late, and types that were locked.
	again = 10 * time.Minute
	// lateAgain is how often all minutes are looked at that the tallies know surely, for
	// transactions that were open for long: the times of their tasks are those of their begin.
	lateAgain = 10 * time.Minute
	// tallyMinutes is how long tallies are surely known by minute: see upkeep.Fold.
	tallyMinutes = 2 * time.Hour
	// batch is the most rows that one statement writes.
	batch = 2000
)

// Recorded says what a recording of a tenant's history found.
type Recorded struct {
	Rows int // that it wrote
	// Live reports that a type isn't idle, or that the minute under way has counts already: the
	// next minute will have points, even if no row is written.
	Live bool
	// Missed reports that another node had the lock, so that not all was written.
	Missed bool
}

// RecordHistory records what a tenant's types did until the end of the last minute, and their live
// tasks now, and notes what is wrong in the tenant. since is when it was last done; zero: not
// known, so it is looked for as far back as the counters go.
func (s *History) RecordHistory(
	ctx context.Context, tenant string, since time.Time,
) (r Recorded, err error) {
	ctx = postgres.Patient(ctx)
	g := gathered{}
	live, due, err := s.gauges(ctx, tenant, g, s.core.Clock.Now())
	if err != nil {
		return r, postgres.Wrap(err, "RecordHistory(%q)", tenant)
	}
	now := s.core.Clock.Now()
	hourly, more, err := gather(ctx, s.core.DB(tenant), tenant, g, since, now)
	r.Live = live || more
	if err != nil {
		return r, postgres.Wrap(err, "RecordHistory(%q)", tenant)
	}
	if err := s.writeParts(ctx, tenant, hours, hourly, &r); err != nil {
		return r, postgres.Wrap(err, "RecordHistory(%q)", tenant)
	}
	if err := s.writeParts(ctx, tenant, minutes, g, &r); err != nil {
		return r, postgres.Wrap(err, "RecordHistory(%q)", tenant)
	}
	err = s.noteTrouble(ctx, tenant, due)
	return r, postgres.Wrap(err, "RecordHistory(%q)", tenant)
}

// gather adds the minutes that are over to g. It also returns the hours, if it isn't known when
// they were last recorded. more reports whether the minute under way has counts.
func gather(
	ctx context.Context, q postgres.Querier, tenant string, g gathered, since, now time.Time,
) (hourly gathered, more bool, err error) {
	end := now.Truncate(time.Minute)
	first := now.Add(-tallyMinutes).Truncate(time.Hour).Add(time.Hour)
	from := since.Add(-again).Truncate(time.Minute)
	if !since.Truncate(lateAgain).Equal(now.Truncate(lateAgain)) && first.Before(from) {
		from = first
	}
	hourly = gathered{}
	if from.Before(first) {
		err = tallies(ctx, q, tenant, hourly, hours, now.Add(-hoursKept).Truncate(24*time.Hour).
			Add(24*time.Hour), now.Truncate(time.Hour))
		if err != nil {
			return nil, false, err
		}
		hourly.addTotals()
		from = first
	}
	if err := tallies(ctx, q, tenant, g, minutes, from, end.Add(time.Minute)); err != nil {
		return nil, false, err
	}
	if err := stageTimes(ctx, q, tenant, g, from, end); err != nil {
		return nil, false, err
	}
	more = g.leaveOut(end)
	g.addTotals()
	return hourly, more, nil
}

// partsAtOnce is the most parts that one transaction writes. Postgres ends a transaction that is
// busy elsewhere for 5 s.
const partsAtOnce = 50

// writeParts writes what was gathered, some parts in a transaction: as numbers only grow, what one
// transaction lacks is written by the next recording.
func (s *History) writeParts(
	ctx context.Context, tenant string, u unit, g gathered, r *Recorded,
) error {
	for parts := range slices.Chunk(slices.Collect(maps.Keys(g)), partsAtOnce) {
		some := gathered{}
		for _, p := range parts {
			some[p] = g[p]
		}
		ours := false
		err := s.core.Exclusively(ctx, tenant, job, func(tx pgx.Tx, _ time.Time) error {
			ours = true
			n, err := write(ctx, tx, tenant, u, some)
			r.Rows += n
			if err == nil && n == 0 {
				err = postgres.ErrIdle
			}
			return err
		})
		r.Missed = r.Missed || !ours
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveOut leaves out the counters of the minute under way, but not its gauges. It reports whether
// there were any.
func (g gathered) leaveOut(minute time.Time) (any bool) {
	for _, points := range g {
		v := points[minute.UTC()]
		for f := range v {
			if !f.isGauge() {
				delete(v, f)
				any = true
			}
		}
		if len(v) == 0 {
			delete(points, minute.UTC())
		}
	}
	return any
}

// row names a row of type_history, of a unit.
type row struct {
	part
	at time.Time
}

// lockTypesSQL keeps types from being deleted, and leaves out types that are being deleted.
const lockTypesSQL = `
SELECT name FROM {schema}.task_types WHERE name = ANY ($1) ORDER BY name FOR KEY SHARE SKIP LOCKED`

// write raises the points of a tenant to the gathered ones. It returns how many rows it wrote.
// Types that are locked or gone are left out; the next recording takes them, if they are still
// there.
func write(
	ctx context.Context, tx pgx.Tx, tenant string, u unit, g gathered,
) (n int, err error) {
	there, err := lockTypes(ctx, tx, tenant, g)
	if err != nil {
		return 0, err
	}
	touched := map[row]map[int]Values{}
	for p, points := range g {
		if !there[p.taskType] {
			continue
		}
		for at, v := range points {
			start, place := u.place(at)
			r := row{p, start}
			if touched[r] == nil {
				touched[r] = map[int]Values{}
			}
			touched[r][place] = v
		}
	}
	keys := slices.SortedFunc(maps.Keys(touched), func(a, b row) int {
		return cmp.Or(cmp.Compare(a.taskType, b.taskType), a.at.Compare(b.at),
			cmp.Compare(a.stage, b.stage))
	})
	for some := range slices.Chunk(keys, batch) {
		written, err := raiseRows(ctx, tx, tenant, u, some, touched)
		if err != nil {
			return n, err
		}
		n += written
	}
	return n, nil
}

// lockTypes locks the types of parts, and returns them. All types together ("") are always there.
func lockTypes(
	ctx context.Context, tx pgx.Tx, tenant string, g gathered,
) (map[string]bool, error) {
	names := map[string]bool{}
	for p := range g {
		names[p.taskType] = true
	}
	rows, err := tx.Query(ctx, fill(tenant, lockTypesSQL), slices.Collect(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	there := map[string]bool{"": true}
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name}, func() error {
		there[name] = true
		return nil
	})
	return there, err
}

const readRowsSQL = `
SELECT coalesce(h.type, ''), h.stage, h.at, h.points
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) n (type, stage, at)
  JOIN {schema}.type_history h ON coalesce(h.type, '') = n.type AND h.stage = n.stage
    AND h.at = n.at AND h.hourly = $4`

const writeRowsSQL = `
INSERT INTO {schema}.type_history (type, stage, hourly, at, points)
SELECT nullif(n.type, ''), n.stage, $4, n.at, n.points
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $5::bytea[]) n (type, stage, at, points)
ON CONFLICT (coalesce(type, ''), hourly, at, stage) DO UPDATE SET points = excluded.points`

// raiseRows raises some rows, and writes those that have changed.
func raiseRows(
	ctx context.Context, tx pgx.Tx, tenant string, u unit, some []row,
	touched map[row]map[int]Values,
) (int, error) {
	stored, err := readRows(ctx, tx, tenant, u, some)
	if err != nil {
		return 0, err
	}
	var changed []row
	var packed [][]byte
	for _, r := range some {
		s := stored[r]
		if s == nil {
			s = span{}
		}
		raised := false
		for place, v := range touched[r] {
			raised = s.raise(place, v) || raised
		}
		if raised {
			changed = append(changed, r)
			packed = append(packed, s.pack())
		}
	}
	if len(changed) == 0 {
		return 0, nil
	}
	names, stages, times := columns(changed)
	_, err = tx.Exec(ctx, fill(tenant, writeRowsSQL), names, stages, times, u.hourly, packed)
	return len(changed), err
}

func readRows(
	ctx context.Context, tx pgx.Tx, tenant string, u unit, some []row,
) (map[row]span, error) {
	names, stages, times := columns(some)
	rows, err := tx.Query(ctx, fill(tenant, readRowsSQL), names, stages, times, u.hourly)
	if err != nil {
		return nil, err
	}
	stored := map[row]span{}
	err = eachRow(rows, func(r row, s span) { stored[r] = s })
	return stored, err
}

// eachRow calls do with rows of type, stage, at and points.
func eachRow(rows pgx.Rows, do func(row, span)) error {
	var r row
	var points []byte
	_, err := pgx.ForEachRow(rows, []any{&r.taskType, &r.stage, &r.at, &points}, func() error {
		s, err := unpack(points)
		if err != nil {
			return err
		}
		do(row{r.part, r.at.UTC()}, s)
		return nil
	})
	return err
}

func columns(some []row) (names, stages []string, times []time.Time) {
	for _, r := range some {
		names = append(names, r.taskType)
		stages = append(stages, r.stage)
		times = append(times, r.at)
	}
	return names, stages, times
}
