package store_test

import (
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// shop is where the ends of tasks are told in these tests.
func shop() *asyncflow.OnFinal {
	f := &asyncflow.OnFinal{URL: "https://shop.example/ended"}
	f.Target = f.TargetOf()
	return f
}

// told makes the target of shop.
func (b *bundle) told() *asyncflow.OnFinal {
	b.t.Helper()
	f := shop()
	_, err := b.CreateTarget(b.t.Context(), tenant, asyncflow.OriginOf(f.URL), asyncflow.Endpoint{
		ID: uuid.NewString(), Type: f.Target, URL: f.URL})
	require.NoError(b.t, err)
	return f
}

// tables returns a query of all rows of a kind of rolled tables.
func (b *bundle) tables(kind, columns string) string {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `SELECT format('SELECT `+columns+` FROM tenant_acme.%I',
		tablename) FROM pg_tables WHERE schemaname = 'tenant_acme'
		AND tablename ~ ('^' || $1 || '_.*[0-9]+$') ORDER BY 1`, kind)
	require.NoError(b.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return strings.Join(all, ` UNION ALL `)
}

// wrongEnds returns the ends of tasks that are not told, or not once: each end that is to be told
// is either to be followed up, or told by a notification with its event.
func (b *bundle) wrongEnds() (wrong []string) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `
		WITH tasks AS (`+b.tables("task", "type, id, options")+`),
		ends AS (SELECT y.name, j.type, j.id, j.seq::int FROM (`+
		b.tables("journal", "type, id, seq, final")+`) j JOIN tasks t USING (type, id)
		  JOIN tenant_acme.task_types y ON y.number = j.type
		  WHERE j.final IS NOT NULL AND t.options -> 'child' IS NULL
		    AND (y.spec -> 'on_final' IS NOT NULL OR t.options -> 'on_final' IS NOT NULL)),
		told AS (SELECT type, id, at AS seq FROM tenant_acme.outbox WHERE kind = 'final'
		  UNION ALL SELECT n.type, n.id, n.seq FROM tenant_acme.notifications n
		    JOIN tasks t ON t.type = n.target AND t.id = n.task JOIN ends e ON e.type = n.type
		      AND e.id = n.id AND e.seq = n.seq
		      AND t.options -> 'notification' ->> 'event' = format('final-%s.%s.%s.%s', e.name,
		        e.id >> 40, e.id & ((1::bigint << 40) - 1), e.seq))
		SELECT format('%s of type %s is told %s times at seq %s', coalesce(e.id, o.id),
		  coalesce(e.type, o.type), coalesce(o.n, 0), coalesce(e.seq, o.seq))
		FROM ends e FULL JOIN (SELECT type, id, seq, count(*) AS n FROM told GROUP BY 1, 2, 3) o
		  ON o.type = e.type AND o.id = e.id AND o.seq = e.seq
		WHERE o.n IS DISTINCT FROM 1 OR e.id IS NULL`)
	require.NoError(b.t, err)
	wrong, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return wrong
}
