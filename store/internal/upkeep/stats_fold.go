package upkeep

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

const (
	// keepMinutes is the age at which the rows of an hour's minutes are added up.
	keepMinutes = 2 * time.Hour
	// keepHours is the age at which the rows of a day's hours are added up.
	keepHours = 30 * 24 * time.Hour
)

// FoldBatch is the most rows that one transaction adds up.
const FoldBatch = 20_000

// foldSQL takes the rows that become one: the rows of a type in one minute, hour or day, by their
// age. Rows of redrives, which take failed or cancelled tasks off, become others, so that the
// numbers of failures, cancels and redrives stay known. It leaves out a single row at the
// beginning of its span. The sum of earlier
// batches is the first row of its span, so one batch goes on where another one ended. It reads
// all rows older than a minute or two, some 800 of a type that is always busy (measured with 50
// such types and nothing to do: 50 ms).
const foldSQL = `
WITH span AS (
  SELECT ctid AS t, type, at, (failed < 0)::int + 2 * (cancelled < 0)::int AS redriven,
    date_bin(
    CASE WHEN at < $3 THEN interval '1 day' WHEN at < $2 THEN interval '1 hour'
      ELSE interval '1 minute' END,
    at, timestamptz '2000-01-01 00:00Z') AS start
  FROM {tallies} WHERE at < $1),
c AS MATERIALIZED (
  SELECT t, start, redriven
  FROM (SELECT *, count(*) OVER (PARTITION BY type, start, redriven) AS rows FROM span) s
  WHERE rows > 1 OR at <> start
  ORDER BY type, at LIMIT $4),
gone AS (
  DELETE FROM {tallies} y USING c WHERE y.ctid = c.t
  RETURNING y.*, c.start, c.redriven)
SELECT type, start, count(*), sum(submitted)::bigint, sum(attempts)::bigint, sum(failures)::bigint,
  sum(snoozes)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(cancelled)::bigint
FROM gone GROUP BY type, start, redriven`

// Fold adds up the tallies of a tenant's types: the rows of a minute into one once it is older
// than counts.RateWindow, the rows of an hour after two hours, the rows of a day after 30 days. It
// also adds up how many tasks expired. No sum changes. It takes at most FoldBatch rows of each
// table and returns how many it took. While the tenant moves to another worker of Citus, it takes
// none: the move would have to catch up for long.
func (s *Upkeep) Fold(ctx context.Context, tenant string) (int, error) {
	ctx = postgres.Patient(ctx)
	table := postgres.Quote(schema.Of(tenant)) + ".tallies"
	if s.core.Distributed() {
		moving, err := schema.IsMoving(ctx, s.core.Base, table)
		if err != nil || moving {
			return 0, err
		}
	}
	fill := func(sql string) string { return strings.ReplaceAll(sql, "{tallies}", table) }
	var taken int
	err := s.core.Exclusively(ctx, tenant, records.FoldJob, func(tx pgx.Tx, now time.Time) error {
		rows, err := tx.Query(ctx, fill(foldSQL), now.Add(-counts.RateWindow).Truncate(time.Minute),
			now.Add(-keepMinutes).Truncate(time.Hour), now.Add(-keepHours).Truncate(24*time.Hour),
			FoldBatch)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		var name string
		var start time.Time
		var n int
		var c records.Tally
		_, err = pgx.ForEachRow(rows,
			[]any{&name, &start, &n, &c.Submitted, &c.Attempts, &c.Failures, &c.Snoozes,
				&c.Succeeded, &c.Failed, &c.Cancelled}, func() error {
				taken += n
				c.Insert(b, fill(records.InsertTallySQL), name, start)
				return nil
			})
		if err != nil {
			return err
		}
		expired, err := foldExpired(ctx, tx, b, schema.Of(tenant))
		taken += expired
		if err != nil {
			return err
		}
		if taken == 0 {
			return postgres.ErrIdle
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, postgres.Wrap(err, "Fold(%q)", tenant)
	}
	return taken, nil
}

// foldExpiredSQL takes the rows of types with more than one, and sums below zero.
const foldExpiredSQL = `
WITH c AS MATERIALIZED (
  SELECT t FROM (
    SELECT ctid AS t, expired, count(*) OVER (PARTITION BY type) AS rows
    FROM {expired_tallies}) e
  WHERE rows > 1 OR expired < 0 LIMIT $1),
gone AS (
  DELETE FROM {expired_tallies} y USING c WHERE y.ctid = c.t RETURNING y.*)
SELECT type, count(*), sum(expired)::bigint FROM gone GROUP BY type`

// foldExpired adds up how many tasks of each type expired, of all times together. It returns how
// many rows it took, and adds the inserts of their sums to a batch. A sum below zero is left out,
// as it would hide as many later tasks: a node of a version before redrove tasks that were never
// counted. Otherwise there is never such a sum in the rows of a type, since a redrive is seen only
// with the expiry that it takes off.
func foldExpired(ctx context.Context, tx pgx.Tx, b *pgx.Batch, in string) (taken int, err error) {
	table := postgres.Quote(in) + ".expired_tallies"
	fill := func(sql string) string { return strings.ReplaceAll(sql, "{expired_tallies}", table) }
	rows, _ := tx.Query(ctx, fill(foldExpiredSQL), FoldBatch)
	var name string
	var n int
	var expired int64
	below := map[string]int64{}
	_, err = pgx.ForEachRow(rows, []any{&name, &n, &expired}, func() error {
		taken += n
		if expired < 0 {
			below[name] = expired
			return nil
		}
		b.Queue(fill(records.InsertExpiredSQL), name, expired)
		return nil
	})
	if taken == FoldBatch { // perhaps the expiries are in rows that were left
		for name, expired := range below {
			b.Queue(fill(records.InsertExpiredSQL), name, expired)
		}
	}
	return taken, err
}

// NextFold returns when Fold may find something to do again, if it just found nothing and no tally
// is written after the last one; zero: never.
func NextFold(last, now time.Time) time.Time {
	switch {
	case !last.Before(now.Add(-counts.RateWindow).Truncate(time.Minute)):
		return now
	case !last.Before(now.Add(-keepMinutes).Truncate(time.Hour)):
		return now.Truncate(time.Hour).Add(time.Hour)
	case !last.Before(now.Add(-keepHours).Truncate(24 * time.Hour)):
		return now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	return time.Time{}
}
