package checkup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// mostTenants is how many tenants are looked at.
const mostTenants = 1000

// eachTenant runs a query in the schema of each tenant, under the tenant's role, and calls found
// for each row. %[1]s in the query stands for the schema.
func (c *checkup) eachTenant(
	ctx context.Context, f *findings, sql string, into []any, found func(tenant string),
	args ...any,
) error {
	rows, _ := c.conn.Query(ctx, `SELECT slug, coalesce(role, '') FROM asyncflow.tenants
		WHERE deleted_at IS NULL ORDER BY slug LIMIT $1`, mostTenants+1)
	type tenant struct{ Slug, Role string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tenant])
	if err != nil {
		return err
	}
	if len(all) > mostTenants {
		all = all[:mostTenants]
		f.add(LevelNote, "look at the others by asyncflow tenants list --trouble",
			"only the first %d tenants were looked at", mostTenants)
	}
	for _, t := range all {
		err = pgx.BeginTxFunc(ctx, c.conn, pgx.TxOptions{AccessMode: pgx.ReadOnly},
			func(tx pgx.Tx) error {
				b := &pgx.Batch{}
				// Citus passes the limit on to the worker that has the tenant.
				b.Queue(`SET LOCAL citus.propagate_set_commands = 'local'`)
				b.Queue(`SET LOCAL lock_timeout = '1s'`)
				b.Queue(`SELECT set_config('role', CASE $1 WHEN '' THEN 'none' ELSE $1 END, true)`,
					t.Role)
				if err := tx.SendBatch(ctx, b).Close(); err != nil {
					return err
				}
				sql := fmt.Sprintf(sql, postgres.Quote(schema.Of(t.Slug)))
				rows, _ := tx.Query(ctx, sql, args...)
				_, err = pgx.ForEachRow(rows, into, func() error {
					found(t.Slug)
					return nil
				})
				return err
			})
		switch state := postgres.State(err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case state == pgerrcode.UndefinedTable, state == pgerrcode.UndefinedColumn,
			state == pgerrcode.InvalidParameterValue:
			// a schema that is behind, or a role that is gone: findings of their own
		case err != nil:
			f.addFor(t.Slug, LevelWarning, checkAgain, "could not be checked: %s", err)
		}
	}
	return nil
}

// endpoints finds stages that nobody delivers to.
func (c *checkup) endpoints(ctx context.Context, f *findings) error {
	var name, stage string
	return c.eachTenant(ctx, f, `
		SELECT t.name, s ->> 'name'
		FROM %[1]s.task_types t, json_array_elements(t.spec -> 'stages') s
		WHERE coalesce(s ->> 'mode', 'push') = 'push' AND s -> 'fan_out' IS NULL
		  AND NOT EXISTS (SELECT FROM %[1]s.endpoints e
		    WHERE e.type = t.name AND e.stage = s ->> 'name' AND e.weight > 0)
		ORDER BY 1, 2 LIMIT $1`, []any{&name, &stage}, func(tenant string) {
		f.addFor(tenant, LevelWarning,
			fmt.Sprintf("asyncflow endpoints create --type %s --stage %s URL, or give one a weight",
				name, stage),
			"the stage %s/%s has no endpoint that gets deliveries: its tasks wait", name, stage)
	}, mostFindings+1)
}

// askedFor is how long a claim stage may be without anybody who asks.
const askedFor = time.Hour

// claimers finds claim stages that nobody asks for tasks.
func (c *checkup) claimers(ctx context.Context, f *findings) error {
	var name, stage string
	var asked *time.Time
	return c.eachTenant(ctx, f, `
		SELECT t.name, s ->> 'name', c.asked_at
		FROM %[1]s.task_types t CROSS JOIN json_array_elements(t.spec -> 'stages') s
		LEFT JOIN %[1]s.claim_stages c ON c.type = t.number AND c.stage = s ->> 'name'
		WHERE s ->> 'mode' = 'claim' AND s -> 'fan_out' IS NULL
		  AND coalesce(c.asked_at < clock_timestamp() - $2::interval, true)
		ORDER BY 1, 2 LIMIT $1`, []any{&name, &stage, &asked}, func(tenant string) {
		when := "nobody has ever asked"
		if asked != nil {
			when = "nobody has asked since " + asked.UTC().Format(time.RFC3339)
		}
		f.addFor(tenant, LevelWarning,
			fmt.Sprintf("start its claimers, or try: asyncflow claim --type %s --stage %s", name,
				stage),
			"%s for tasks of the claim stage %s/%s", when, name, stage)
	}, mostFindings+1, askedFor)
}

// soon is how long before its end a secret is reported.
const soon = 7 * 24 * time.Hour

// secrets finds earlier secrets that stop signing soon.
func (c *checkup) secrets(ctx context.Context, f *findings) error {
	var name, stage, url string
	var until time.Time
	return c.eachTenant(ctx, f, `
		SELECT e.type, e.stage, e.url, s.expires_at
		FROM %[1]s.endpoint_secrets s JOIN %[1]s.endpoints e ON e.id = s.endpoint
		WHERE s.expires_at BETWEEN clock_timestamp() AND clock_timestamp() + $2::interval
		ORDER BY 4 LIMIT $1`, []any{&name, &stage, &url, &until}, func(tenant string) {
		f.addFor(tenant, LevelNote, "see that the worker knows the new secret",
			"the earlier secret of %s (%s/%s) signs until %s", url, name, stage,
			until.UTC().Format(time.RFC3339))
	}, mostFindings+1, soon)
}

// rollLate is how long a roll may still have tasks to be leased after the next one was opened, as
// for the alert roll_overdue.
const rollLate = 10 * time.Minute

// rolls finds table sets that are still leased from an old roll.
func (c *checkup) rolls(ctx context.Context, f *findings) error {
	var set string
	var position int
	var opened, now time.Time
	return c.eachTenant(ctx, f, `
		SELECT r.table_set, r.position, n.opened_at, clock_timestamp()
		FROM %[1]s.rolls r JOIN LATERAL (SELECT min(opened_at) AS opened_at FROM %[1]s.rolls n
		  WHERE n.table_set = r.table_set AND n.position > r.position) n ON true
		WHERE r.drained_at IS NULL AND r.sealed_at IS NOT NULL
		  AND n.opened_at < clock_timestamp() - $2::interval
		ORDER BY 3 LIMIT $1`, []any{&set, &position, &opened, &now}, func(tenant string) {
		tables := "the shared tables"
		if set != "" {
			tables = "the tables " + set
		}
		f.addFor(tenant, LevelWarning,
			"see which tasks wait: asyncflow tasks list --status pending",
			"roll %d of %s still has tasks to be leased; the next one was opened %s", position,
			tables, ago(now, opened))
	}, mostFindings+1, rollLate)
}
