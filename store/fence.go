package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
)

// surveyed are the columns that the base role may read in each tenant's schema: what
// governance asks of many tenants in one statement (see ofTenants), which is when there
// is something to do for one, and nothing of what it is.
var surveyed = map[string]string{
	"audit":            "id, at",
	"idempotency_keys": "expires_at",
	"operations":       "id, type, state, next_at",
	"schedules":        "paused_at, next_at",
	"tallies":          "at",
}

// fence makes and keeps the roles of a database. It has a lock on them until it is
// closed.
type fence struct {
	conn   *pgx.Conn
	user   string // who we are
	prefix string // of the names of roles; the base role's name itself
}

// openFence connects, waits for others who are at it, and sees to the base role. The
// schema asyncflow is current.
func openFence(ctx context.Context, url string) (_ *fence, err error) {
	f := &fence{}
	if f.conn, err = connect(ctx, url); err != nil {
		return nil, connectError(url, err)
	}
	defer func() {
		if err != nil {
			f.close(ctx)
		}
	}()
	if _, err = f.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, JobLock("fence")); err != nil {
		return nil, err
	}
	err = f.conn.QueryRow(ctx, `SELECT current_user, prefix FROM asyncflow.fence`).Scan(&f.user, &f.prefix)
	if sqlState(err) == "42P01" {
		return nil, noSchema()
	}
	return f, err
}

// close gives the lock back.
func (f *fence) close(ctx context.Context) { _ = f.conn.Close(context.WithoutCancel(ctx)) }

// roleOf returns the name of a tenant's role.
func (f *fence) roleOf(tenant string) string { return f.prefix + "_" + tenant }

// base makes the base role, and gives it the schema asyncflow as it is now, but for the
// tables that only a migration writes.
func (f *fence) base(ctx context.Context) error {
	if err := f.need(ctx, f.prefix); err != nil {
		return err
	}
	role := quote(f.prefix)
	_, err := f.conn.Exec(ctx, `
		GRANT USAGE ON SCHEMA asyncflow TO `+role+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA asyncflow TO `+role+`;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA asyncflow TO `+role+`;
		REVOKE INSERT, UPDATE, DELETE ON asyncflow.fence, asyncflow.migrations FROM `+role+`;
		REVOKE UPDATE ON asyncflow.audit FROM `+role+`;
		UPDATE asyncflow.fence SET base_role = prefix WHERE base_role IS DISTINCT FROM prefix`)
	return wrap(err, "grant the schema asyncflow to %s", f.prefix)
}

// own makes a tenant's role and gives it the tenant's schema with all that is in it. It
// may be repeated.
func (f *fence) own(ctx context.Context, tenant string) error {
	role, schema := f.roleOf(tenant), schemaOf(tenant)
	if err := f.need(ctx, role); err != nil {
		return err
	}
	var ours bool
	err := f.conn.QueryRow(ctx, `SELECT nspowner = $2::text::regrole FROM pg_namespace WHERE nspname = $1`, schema, quote(role)).Scan(&ours)
	if err == nil && !ours {
		_, err = f.conn.Exec(ctx, `ALTER SCHEMA `+quote(schema)+` OWNER TO `+quote(role))
	}
	if err != nil {
		return wrap(err, "give schema %s to %s", schema, role)
	}
	rows, _ := f.conn.Query(ctx, `
		SELECT 'TABLE ' || c.oid::regclass FROM pg_class c WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relowner <> $2::text::regrole
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND relkind = 'S')
		UNION ALL
		SELECT 'FUNCTION ' || p.oid::regprocedure FROM pg_proc p WHERE pronamespace = $1::text::regnamespace AND proowner <> $2::text::regrole
		ORDER BY 1`, quote(schema), quote(role)) // CollectRows tells of its error
	things, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, thing := range things {
		err = firstError(err, f.give(ctx, thing, role))
	}
	return wrap(err, "give what is in %s to %s", schema, role)
}

const (
	// givePatience is how long give waits for the lock of a table: whoever comes after it
	// waits too. It tries that often, with a pause.
	givePatience = "500ms"
	giveTries    = 60
	givePause    = 500 * time.Millisecond
)

// give gives something, such as "TABLE acme.tallies", to a role. Nodes may be at work in it.
func (f *fence) give(ctx context.Context, thing, role string) (err error) {
	for range giveTries {
		_, err = f.conn.Exec(ctx, `BEGIN; SET LOCAL lock_timeout = '`+givePatience+`'; ALTER `+thing+` OWNER TO `+quote(role)+`; COMMIT`)
		if err == nil {
			return nil
		}
		if _, ended := f.conn.Exec(ctx, `ROLLBACK`); ended != nil || sqlState(err) != "55P03" {
			break
		}
		sleep(ctx, givePause)
	}
	return err
}

// migrate gives a tenant's schema to its role, brings it to the newest version as that
// role, and grants what others may do in it.
func (f *fence) migrate(ctx context.Context, url, tenant string) (MigrationStatus, error) {
	if err := f.own(ctx, tenant); err != nil {
		return MigrationStatus{}, err
	}
	status, err := migrateSchema(ctx, url, schemaOf(tenant), migrations.Tenant(), f.roleOf(tenant))
	if err != nil {
		return status, connectOr(err, url)
	}
	return status, f.grant(ctx, tenant)
}

// enter writes down that a tenant's schema is current, and its role: from now on it is
// used.
func (f *fence) enter(ctx context.Context, tenant string) error {
	_, err := f.conn.Exec(ctx, `UPDATE asyncflow.tenants SET schema_version = $2, role = $3 WHERE slug = $1`,
		tenant, latestVersion(migrations.Tenant()), f.roleOf(tenant))
	return wrap(err, "enter the role of %q", tenant)
}

// grant lets the base role read what is surveyed. It takes the right to delete from the
// audit away from the tenant's role, under which all calls are served, and gives it to the base
// role, for ForgetAudit.
func (f *fence) grant(ctx context.Context, tenant string) error {
	role, schema, base := quote(f.roleOf(tenant)), quote(schemaOf(tenant)), quote(f.prefix)
	grants := []string{`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + base}
	for _, table := range slices.Sorted(maps.Keys(surveyed)) {
		grants = append(grants, `GRANT SELECT (`+surveyed[table]+`) ON `+schema+`.`+table+` TO `+base)
	}
	audit := schema + `.audit`
	grants = append(grants, `GRANT DELETE ON `+audit+` TO `+base, `REVOKE UPDATE, DELETE, TRUNCATE ON `+audit+` FROM `+role)
	_, err := f.conn.Exec(ctx, `BEGIN; SET LOCAL ROLE `+role+`; `+strings.Join(grants, "; ")+`; COMMIT`)
	return wrap(err, "grant what the base role may do in %s", schema)
}

// need makes roles that are not there, and has our user be a member of each.
func (f *fence) need(ctx context.Context, names ...string) error {
	missing, err := f.missing(ctx, names)
	if err != nil {
		return wrap(err, "look at roles")
	}
	for i, name := range missing {
		_, err := f.conn.Exec(ctx, `CREATE ROLE `+quote(name)+` NOLOGIN`)
		if state := sqlState(err); state == "42710" || state == "23505" { // it is there, but not ours yet
			err = nil
		}
		if err == nil {
			_, err = f.conn.Exec(ctx, `GRANT `+quote(name)+` TO CURRENT_USER`)
		}
		if sqlState(err) == "42501" {
			return mayNot(f.user, missing[i:], err)
		}
		if err != nil {
			return wrap(err, "make role %s", name)
		}
	}
	return nil
}

// missing returns those roles that our user can't take: they aren't there, or it is no
// member. From Postgres 16 on, whoever made a role is a member that may neither take it
// nor use it.
func (f *fence) missing(ctx context.Context, names []string) ([]string, error) {
	rows, err := f.conn.Query(ctx, `
		SELECT name FROM unnest($1::text[]) WITH ORDINALITY AS n (name, i) LEFT JOIN pg_roles r ON rolname = name
		WHERE r.oid IS NULL OR NOT CASE WHEN current_setting('server_version_num')::int >= 160000
		  THEN pg_has_role(r.oid, 'SET') AND pg_has_role(r.oid, 'USAGE') ELSE pg_has_role(r.oid, 'MEMBER') END
		ORDER BY i`, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// mayNot says what an administrator is to do.
func mayNot(user string, missing []string, err error) error {
	var do strings.Builder
	for _, name := range missing {
		fmt.Fprintf(&do, "\n  CREATE ROLE %[1]s NOLOGIN; GRANT %[1]s TO %[2]s;", quote(name), quote(user))
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err, Message: fmt.Sprintf(
		"the database user %s may not make the roles that keep tenants apart. An administrator can allow it to:\n"+
			"  ALTER ROLE %s CREATEROLE;\nor make the roles for it:%s\n"+
			"Then run asyncflow migrate up again. Or do without them: --database-roles=off", user, quote(user), do.String())}
}

// DropTenantRole drops the role of a tenant whose schema is gone. It tells whether it
// could: another database of the cluster, a copy of this one, may go on using it.
func (s *Store) DropTenantRole(ctx context.Context, role string) (dropped bool, err error) {
	tx, err := s.base.BeginTx(ctx, pgx.TxOptions{BeginQuery: `BEGIN; SET LOCAL ROLE NONE`})
	if err == nil {
		_, err = tx.Exec(ctx, `DROP ROLE IF EXISTS `+quote(role))
		err = firstError(err, tx.Commit(ctx))
	}
	if sqlState(err) == "2BP01" {
		return false, nil
	}
	return err == nil, wrap(err, "DropTenantRole(%q)", role)
}
