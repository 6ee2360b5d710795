package schema

import (
	"context"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// developmentSQL is an expression for the first table of versions that a program from before 0.1
// has made, null if there is none. Its name differs from versionTable, so the two kinds of
// databases differ at any version. A tenant's schema also has a table of rolls or of task types.
const developmentSQL = `(SELECT v.oid::regclass::text
	FROM pg_class v JOIN pg_namespace n ON n.oid = v.relnamespace
	WHERE v.relname = 'migrations' AND v.relkind = 'r' AND (n.nspname = 'asyncflow'
	  OR n.nspname LIKE 'tenant\_%' AND EXISTS (SELECT FROM pg_class c
	    WHERE c.relnamespace = n.oid AND c.relname = 'task_types'))
	ORDER BY n.nspname LIMIT 1)`

// RefuseDevelopment refuses a database with a schema from before 0.1: no migration leads on from
// there. It changes nothing.
func RefuseDevelopment(ctx context.Context, db querier) error {
	var table *string
	if err := db.QueryRow(ctx, `SELECT `+developmentSQL).Scan(&table); err != nil {
		return err
	}
	if table == nil {
		return nil
	}
	var version int64
	err := db.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+*table).Scan(&version)
	if postgres.State(err) == pgerrcode.InsufficientPrivilege { // the base role reads tenants' rows
		err = db.QueryRow(ctx, `SELECT coalesce(max(schema_version), 0) FROM asyncflow.tenants
			WHERE quote_ident('tenant_' || slug) || '.migrations' = $1`, *table).Scan(&version)
	}
	if err != nil {
		return postgres.Wrap(err, "read %s", *table)
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the database has a schema of a development version before 0.1 (%s is at %d), which this "+
			"program can't migrate: make a new database; before that, finish or export the tasks "+
			"with the old program", *table, version)
}

// refuseDevelopmentAt is RefuseDevelopment for the database at url.
func refuseDevelopmentAt(ctx context.Context, url string) error {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	return RefuseDevelopment(ctx, conn)
}
