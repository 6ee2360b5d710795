package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// foldBatch is the most rows of minutes that one transaction folds.
const foldBatch = 1000

// An hour's minutes are folded once they are all older than minutesKept, with some time for a
// minute that is recorded late; a day is deleted once it is all older than hoursKept.
func foldBefore(now time.Time) time.Time {
	return now.Add(-minutesKept - time.Hour).Truncate(time.Hour)
}
func forgetBefore(now time.Time) time.Time { return now.Add(-hoursKept - 24*time.Hour) }

// takeSQL deletes the minutes of hours before $1, of types $3 and of all types together.
const takeSQL = `
WITH c AS MATERIALIZED (
  SELECT ctid AS t FROM {schema}.type_history
  WHERE NOT hourly AND at < $1 AND coalesce(type, '') = ANY ($3) LIMIT $2)
DELETE FROM {schema}.type_history h USING c WHERE h.ctid = c.t
RETURNING coalesce(h.type, ''), h.stage, h.at, h.points`

// toFoldSQL reads the types with minutes before $1.
const toFoldSQL = `
SELECT DISTINCT coalesce(type, '') FROM {schema}.type_history WHERE NOT hourly AND at < $1`

// FoldHistory makes hours of a tenant's minutes that are older than minutesKept, and deletes days
// that are older than hoursKept. It takes at most foldBatch rows of minutes, and returns how many
// rows it took.
func (s *History) FoldHistory(ctx context.Context, tenant string) (n int, err error) {
	ctx = postgres.Patient(ctx)
	err = s.core.Exclusively(ctx, tenant, job, func(tx pgx.Tx, now time.Time) error {
		if n, err = fold(ctx, tx, tenant, now); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, fill(tenant,
			`DELETE FROM {schema}.type_history WHERE hourly AND at < $1`), forgetBefore(now))
		if n += int(tag.RowsAffected()); err == nil && n == 0 {
			err = postgres.ErrIdle
		}
		return err
	})
	return n, postgres.Wrap(err, "FoldHistory(%q)", tenant)
}

func fold(ctx context.Context, tx pgx.Tx, tenant string, now time.Time) (n int, err error) {
	rows, err := tx.Query(ctx, fill(tenant, toFoldSQL), foldBefore(now))
	if err != nil {
		return 0, err
	}
	g := gathered{}
	var name string
	if _, err = pgx.ForEachRow(rows, []any{&name}, func() error {
		g[part{name, ""}] = nil
		return nil
	}); err != nil || len(g) == 0 {
		return 0, err
	}
	there, err := lockTypes(ctx, tx, tenant, g)
	if err != nil {
		return 0, err
	}
	var names []string
	for name := range there {
		names = append(names, name)
	}
	rows, err = tx.Query(ctx, fill(tenant, takeSQL), foldBefore(now), foldBatch, names)
	if err != nil {
		return 0, err
	}
	clear(g)
	err = eachRow(rows, func(r row, s span) {
		g.values(r.part, r.at).fold(s.sum())
		n++
	})
	if err != nil {
		return n, err
	}
	_, err = write(ctx, tx, tenant, hours, g)
	return n, err
}

// NextFoldHistory returns when the first of a tenant's present rows is old enough for FoldHistory;
// zero: there are none.
func (s *History) NextFoldHistory(
	ctx context.Context, tenant string,
) (next time.Time, err error) {
	var minute, day *time.Time
	err = s.core.DB(tenant).QueryRow(ctx, fill(tenant, `
		SELECT (SELECT min(at) FROM {schema}.type_history WHERE NOT hourly),
		  (SELECT min(at) FROM {schema}.type_history WHERE hourly)`)).Scan(&minute, &day)
	if minute != nil {
		next = minute.Add(minutesKept + 2*time.Hour)
	}
	if day != nil {
		end := day.Add(hoursKept + 24*time.Hour + time.Second)
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next, postgres.Wrap(err, "NextFoldHistory(%q)", tenant)
}

// DryRunFoldHistory counts the rows that FoldHistory would take.
func (s *History) DryRunFoldHistory(ctx context.Context, tenant string) (int, error) {
	now := s.core.Clock.Now()
	return postgres.CountRows(ctx, s.core.DB(tenant), fill(tenant, `
		SELECT count(*) FROM {schema}.type_history
		WHERE NOT hourly AND at < $1 OR hourly AND at < $2`), foldBefore(now), forgetBefore(now))
}
