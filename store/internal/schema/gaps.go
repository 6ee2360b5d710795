package schema

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Gap is a role or a grant that a database lacks, as after a restore.
type Gap struct {
	Tenant string // "": of no tenant
	Text   string
	Do     string // about it
}

// newGap returns a gap that migrate up fills.
func newGap(tenant, format string, args ...any) Gap {
	return Gap{tenant, fmt.Sprintf(format, args...), "asyncflow migrate up"}
}

// Gaps returns the roles and grants that the database at url lacks, and changes nothing. Without
// roles, by noRoles or as nobody has made them, these are only the grants of roles that submit by
// SQL, and functions of Citus that every role may call. As long as the schema asyncflow is behind,
// there are no gaps yet.
func Gaps(ctx context.Context, url string, noRoles bool) ([]Gap, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, postgres.ConnectError(url, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	f := &RoleFence{db: conn, conn: conn}
	var made bool
	var version int64
	err = conn.QueryRow(ctx, `SELECT current_user, prefix, base_role IS NOT NULL,
		(SELECT max(version_id) FROM asyncflow.schema_versions), `+postgres.DistributedSQL+`
		FROM asyncflow.fence`).Scan(&f.user, &f.prefix, &made, &version, &f.logins)
	switch state := postgres.State(err); {
	case state == pgerrcode.UndefinedTable, state == pgerrcode.InvalidSchemaName,
		err == nil && version < latestVersion(migrations.Asyncflow()):
		return nil, nil
	case err != nil:
		return nil, mayNotLook(postgres.Wrap(err, "Gaps"))
	}
	var all []Gap
	workerGaps := func(ctx context.Context) ([]Gap, error) {
		return f.workerGaps(ctx, url, noRoles || !made)
	}
	find := []func(context.Context) ([]Gap, error){f.submitterGaps, workerGaps}
	if made && !noRoles {
		find = append([]func(context.Context) ([]Gap, error){f.baseGaps, f.tenantGaps}, find...)
	}
	for _, one := range find {
		gaps, err := one(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, gaps...)
	}
	return all, nil
}

// baseGaps returns what the role of the nodes lacks.
func (f *RoleFence) baseGaps(ctx context.Context) ([]Gap, error) {
	missing, err := f.missing(ctx, []string{f.prefix})
	if err != nil {
		return nil, postgres.Wrap(err, "look at roles")
	}
	if len(missing) > 0 && !missing[0].exists {
		return []Gap{newGap("", "the role %s of the nodes is gone", f.prefix)}, nil
	}
	var all []Gap
	if len(missing) > 0 {
		all = append(all, newGap("", "the user %s is no member of the role %s of the nodes",
			f.user, f.prefix))
	}
	var unread int
	err = f.db.QueryRow(ctx, `SELECT count(*) FROM pg_class
		WHERE relnamespace = 'asyncflow'::regnamespace AND relkind IN ('r', 'p')
		  AND NOT (has_schema_privilege($1::name, relnamespace, 'USAGE')
		    AND has_table_privilege($1::name, oid, 'SELECT'))`, f.prefix).Scan(&unread)
	if unread > 0 {
		all = append(all, newGap("", "the role %s of the nodes may not read %d tables of the "+
			"schema asyncflow", f.prefix, unread))
	}
	return all, postgres.Wrap(err, "look at the rights of %s", f.prefix)
}

// tenantGaps returns tenants with a role that is missing, doesn't own all of its schema, or hasn't
// let the role of the nodes see when there is something to do.
func (f *RoleFence) tenantGaps(ctx context.Context) ([]Gap, error) {
	var tables, columns []string
	for _, table := range slices.Sorted(maps.Keys(surveyed)) {
		for column := range strings.SplitSeq(surveyed[table], ", ") {
			tables, columns = append(tables, table), append(columns, column)
		}
	}
	rows, _ := f.db.Query(ctx, `
		SELECT slug, coalesce(role, ''), r.oid IS NOT NULL,
		  coalesce(n.nspowner = r.oid AND others.n IS NULL, false),
		  grants IS NOT DISTINCT FROM $2 AND coalesce((SELECT
		      has_schema_privilege(b.oid, n.oid, 'USAGE') AND bool_and(
		        has_column_privilege(b.oid, c.oid, a.attnum, 'SELECT'))
		    FROM unnest($3::text[], $4::text[]) AS s (relation, attribute)
		    JOIN pg_class c ON c.relname = s.relation AND c.relnamespace = n.oid
		    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = s.attribute), true)
		FROM asyncflow.tenants t
		LEFT JOIN pg_roles r ON r.rolname = role
		LEFT JOIN pg_roles b ON b.rolname = $1
		LEFT JOIN pg_namespace n ON n.nspname = 'tenant_' || slug
		LEFT JOIN (SELECT relnamespace, count(*) AS n
		  FROM pg_class c JOIN pg_namespace o ON o.oid = relnamespace
		  WHERE relkind IN ('r', 'p', 'v', 'S') AND relowner <> nspowner GROUP BY 1) others
		  ON others.relnamespace = n.oid
		WHERE dropping_at IS NULL AND schema_version = $5
		ORDER BY slug`, f.prefix, f.grantsHash(), tables, columns, LatestTenant())
	var slug, role string
	var exists, owns, granted bool
	var all []Gap
	_, err := pgx.ForEachRow(rows, []any{&slug, &role, &exists, &owns, &granted}, func() error {
		switch {
		case role == "":
			all = append(all, newGap(slug, "the tenant has no database role"))
		case !exists:
			all = append(all, newGap(slug, "the tenant's database role %s is gone", role))
		case !owns:
			all = append(all, newGap(slug,
				"the tenant's database role %s doesn't own all of its schema", role))
		case !granted:
			all = append(all, newGap(slug, "the tenant's database role %s hasn't granted the role "+
				"of the nodes its rights", role))
		}
		return nil
	})
	return all, postgres.Wrap(err, "look at the roles of tenants")
}

// submitterGaps returns tenants with functions that a role may not call and should, or that anybody
// may call, and audits that somebody may change.
func (f *RoleFence) submitterGaps(ctx context.Context) ([]Gap, error) {
	rows, _ := f.db.Query(ctx, `SELECT slug, s.name FROM asyncflow.tenants, unnest(submitters)
		AS s (name) WHERE dropping_at IS NULL
		  AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = s.name) ORDER BY 1, 2`)
	var slug, text string
	var all []Gap
	_, err := pgx.ForEachRow(rows, []any{&slug, &text}, func() error {
		gap := newGap(slug, "the role %s, which may submit by SQL, is gone", text)
		gap.Do = fmt.Sprintf("make it, then asyncflow migrate up; or "+
			"asyncflow tenants revoke-submit %s %s", slug, text)
		all = append(all, gap)
		return nil
	})
	if err != nil {
		return nil, postgres.Wrap(err, "look at the roles that submit by SQL")
	}
	rows, _ = f.db.Query(ctx, tenantsSQL+` SELECT DISTINCT slug, rolname FROM lacked
		WHERE NOT known ORDER BY 1, 2`, nil)
	_, err = pgx.ForEachRow(rows, []any{&slug, &text}, func() error {
		gap := newGap(slug, "the role %s may submit by SQL, but may be another one of that name: "+
			"it was made anew, or the database came from another cluster", text)
		gap.Do = fmt.Sprintf("asyncflow tenants grant-submit %[1]s %[2]s, if it is meant; or "+
			"asyncflow tenants revoke-submit %[1]s %[2]s", slug, text)
		all = append(all, gap)
		return nil
	})
	if err != nil {
		return nil, postgres.Wrap(err, "look at the roles that submit by SQL")
	}
	rows, _ = f.db.Query(ctx, `SELECT slug, count(*) FILTER (WHERE statement LIKE 'GRANT%'),
		count(*) FILTER (WHERE statement LIKE 'REVOKE ALL%'),
		count(*) FILTER (WHERE statement LIKE 'REVOKE UPDATE%')
		FROM (`+lostRightsSQL+`) l GROUP BY 1 ORDER BY 1`, nil)
	var lost, open, audits int
	_, err = pgx.ForEachRow(rows, []any{&slug, &lost, &open, &audits}, func() error {
		if lost > 0 {
			all = append(all, newGap(slug, "roles that submit by SQL lack %d grants", lost))
		}
		if open > 0 {
			all = append(all, newGap(slug, "every role may call %d functions of the tenant", open))
		}
		if audits > 0 {
			all = append(all, newGap(slug, "the owner of the table audit may change its rows"))
		}
		return nil
	})
	return all, postgres.Wrap(err, "look at the rights of roles that submit by SQL")
}
