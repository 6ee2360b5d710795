package tasks

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// OverdueContents returns for how long at most contents of a tenant's tasks are due to be erased:
// since the end of the retention that ended first. Zero: none are.
func (s *Tasks) OverdueContents(
	ctx context.Context, tenant string,
) (overdue time.Duration, err error) {
	numbers := []int32{}
	keeps := []float64{}
	for _, t := range s.core.Catalog.TypesOf(tenant) {
		if keep := t.ContextRetention.Std(); keep > 0 {
			numbers = append(numbers, t.Number())
			keeps = append(keeps, keep.Seconds())
		}
	}
	var seconds float64
	err = s.core.DB(tenant).QueryRow(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT coalesce(max(extract(epoch FROM $3 - f.since)::float8 - u.keep), 0)
		FROM unnest($1::int[], $2::float8[]) AS u (type, keep), LATERAL (
		  SELECT since FROM {content_cursors} WHERE type = u.type AND since < 'infinity'
		  UNION ALL
		  (SELECT since FROM {content_waits} WHERE type = u.type ORDER BY since LIMIT 1)) f`),
		numbers, keeps, s.core.Clock.Now()).Scan(&seconds)
	return time.Duration(max(0, seconds) * float64(time.Second)),
		postgres.Wrap(err, "OverdueContents(%q)", tenant)
}

// mostCounted bounds what a dry run looks at in a roll.
const mostCounted = 10_000

// DryRunAged counts the tasks of a type that EraseAged would erase now, if nothing needs
// them, up to mostCounted of each roll. Tasks that it would only visit again count, too.
func (s *Tasks) DryRunAged(ctx context.Context, tenant, name string) (n int, err error) {
	t, err := s.core.Catalog.Type(tenant, name)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	before := s.core.Clock.Now().Add(-t.ContextRetention.Std())
	db := s.core.DB(tenant)
	n, err = postgres.CountRows(ctx, db, t.SQL(0, `SELECT count(*) FROM (
		SELECT FROM {content_waits} WHERE type = $1 AND since <= $2 LIMIT $3) w`), t.Number(),
		before, mostCounted)
	if err != nil {
		return 0, postgres.Wrap(err, "DryRunAged(%q, %q)", tenant, name)
	}
	rows, _ := db.Query(ctx, t.SQL(0, `SELECT upto, passed FROM {content_cursors}
		WHERE type = $1 AND since <= $2`), t.Number(), before)
	var cursors []contentCursor
	var one contentCursor
	_, err = pgx.ForEachRow(rows, []any{&one.upto, &one.passed}, func() error {
		cursors = append(cursors, one)
		return nil
	})
	for _, c := range cursors {
		if err != nil || !t.Has(c.position()) {
			continue
		}
		var found int
		found, err = postgres.CountRows(ctx, db, t.SQL(c.position(), `SELECT count(*) FROM (
			  SELECT * FROM {task} WHERE type = $1 AND id > $2 AND id <= $3 ORDER BY id LIMIT $5) t
			WHERE t.options -> 'erased' IS NULL AND (
			  SELECT CASE WHEN j.final <> '' THEN j.at END FROM {journal} j
			  WHERE j.type = t.type AND j.id = t.id ORDER BY j.seq DESC LIMIT 1) <= $4`),
			t.Number(), c.passed, c.upto, before, mostCounted)
		n += found
	}
	return n, postgres.Wrap(err, "DryRunAged(%q, %q)", tenant, name)
}
