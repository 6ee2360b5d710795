package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// makeTries is how often a role is made that a copy of the database makes at the same time.
const makeTries = 10

// make makes a role, in as many transactions as it takes until the connection knows it, and no copy
// of the database changes it at the same time ("tuple concurrently updated").
func (f *RoleFence) make(ctx context.Context, role missingRole) (err error) {
	for range makeTries {
		_, err = f.db.Exec(ctx, f.makeSQL(role))
		state := postgres.State(err)
		if state != pgerrcode.UndefinedObject && state != pgerrcode.InternalError {
			return err
		}
	}
	return err
}

// missingRole is a role that our user can't take, or that can't log in where it has to. It doesn't
// exist, or the user is no member.
type missingRole struct {
	name   string
	exists bool
}

// makeSQL makes the role unless it exists, and makes our user a member. A copy of the database may
// make the role at the same time. For a moment our connection may then neither make it nor know it.
func (f *RoleFence) makeSQL(r missingRole) string {
	name := postgres.Quote(r.name)
	grant := `GRANT ` + name + ` TO CURRENT_USER`
	if f.logins && r.name != f.loginGroup() {
		grant += `; ` + f.loginSQL(r.name)
	}
	if f.logins { // each server makes them by itself
		grant = `PERFORM set_config('citus.enable_ddl_propagation', 'off', true); ` + grant
	}
	create := ``
	if !r.exists {
		create = `BEGIN CREATE ROLE ` + name + ` NOLOGIN;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;`
	}
	return `DO $make$ BEGIN
		` + create + `
		FOR i IN 1..100 LOOP
			BEGIN ` + grant + `; RETURN;
			EXCEPTION WHEN undefined_object THEN PERFORM pg_sleep(0.01); END;
		END LOOP;
		` + grant + `;
		END $make$`
}

// missing returns the roles that our user can't take, or that can't log in where they have to. From
// Postgres 16 on, the user that made a role is a member that may neither take it nor use it.
func (f *RoleFence) missing(ctx context.Context, names []string) ([]missingRole, error) {
	rows, _ := f.db.Query(ctx, `
		SELECT name, r.oid IS NOT NULL FROM unnest($1::text[]) WITH ORDINALITY AS n (name, i)
		LEFT JOIN pg_roles r ON r.rolname = name LEFT JOIN pg_roles g ON g.rolname = $2
		WHERE r.oid IS NULL OR NOT CASE WHEN current_setting('server_version_num')::int >= 160000
		  THEN pg_has_role(r.oid, 'SET') AND pg_has_role(r.oid, 'USAGE')
		  ELSE pg_has_role(r.oid, 'MEMBER') END
		  OR $3 AND r.oid IS DISTINCT FROM g.oid AND NOT (r.rolcanlogin
		    AND coalesce(r.rolvaliduntil = '-infinity', false)
		    AND coalesce(pg_has_role(r.oid, g.oid, 'MEMBER'), false))
		ORDER BY i`, names, f.loginGroup(), f.logins)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r missingRole, err error) {
		return r, row.Scan(&r.name, &r.exists)
	})
}

// mayNotMakeRoles tells an administrator what to do.
func (f *RoleFence) mayNotMakeRoles(missing []missingRole, err error) error {
	var do strings.Builder
	for _, role := range missing {
		fmt.Fprintf(&do, "\n  CREATE ROLE %[1]s NOLOGIN; GRANT %[1]s TO %[2]s;",
			postgres.Quote(role.name), postgres.Quote(f.user))
		if f.logins && role.name != f.loginGroup() {
			do.WriteString(" " + f.loginSQL(role.name) + ";")
		}
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err, Message: fmt.Sprintf(
		"the database user %s may not make the roles that keep tenants apart. "+
			"An administrator can allow it to:\n"+
			"  ALTER ROLE %s CREATEROLE;\nor make the roles for it:%s\n"+
			"Then run asyncflow migrate up again. Or do without them: --database-roles=off",
		f.user, postgres.Quote(f.user), do.String())}
}
