package schema

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Where a database has the extension Citus, the schema of a new tenant is distributed: Citus
// chooses a server that has all of its tables, a worker, and nodes connect to the coordinator,
// which knows of them. The schema asyncflow stays on the coordinator. See ADR 70.

// CitusVersion returns the version of the extension Citus in a database; "": it isn't there.
func CitusVersion(ctx context.Context, q postgres.Querier) (version string, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce((SELECT extversion FROM pg_extension
		WHERE extname = 'citus'), '')`).Scan(&version)
	return version, postgres.Wrap(err, "look for Citus")
}

// Distributes reports whether the schema of a new tenant is to be distributed.
func Distributes(ctx context.Context, q postgres.Querier) (bool, error) {
	version, err := CitusVersion(ctx, q)
	return version != "", err
}

// byItself has the rest of a transaction make all of a schema on this server, whatever the server's
// defaults. Nothing is set without the extension: a server may load Citus and know other settings.
// SET LOCAL would bring the whole text that it is in to the workers.
const byItself = `SELECT set_config(name, value, true) FROM unnest(
	  ARRAY['citus.enable_schema_based_sharding', 'citus.enable_ddl_propagation',
	    'citus.propagate_set_commands'], ARRAY['off', 'off', 'none']) AS s (name, value)
	WHERE EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')`

// propagateLocal has Citus pass SET LOCAL on to workers.
const propagateLocal = `SET LOCAL citus.propagate_set_commands = 'local'`

// Distribute gives a tenant's schema to a worker, unless it has one. It needs a transaction. owner
// is the tenant's role, "" for none.
func Distribute(ctx context.Context, tx pgx.Tx, tenant, owner string) error {
	name := Of(tenant)
	var done bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_schema
		WHERE schemaid = $1::text::regnamespace)`, postgres.Quote(name)).Scan(&done)
	if err != nil || done {
		return postgres.Wrap(err, "look at the schema of %q", tenant)
	}
	for _, statement := range []string{
		`SET LOCAL citus.enable_ddl_propagation = on`,
		`SET LOCAL citus.multi_shard_modify_mode = 'sequential'`,
		// On workers, too: the names in functions lead nowhere yet.
		propagateLocal,
		`SET LOCAL check_function_bodies = off`,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return postgres.Wrap(err, "distribute the schema of %q", tenant)
		}
	}
	_, err = tx.Exec(ctx, `SELECT citus_schema_distribute($1::text::regnamespace)`,
		postgres.Quote(name))
	if err != nil {
		return postgres.Wrap(err, "distribute the schema of %q", tenant)
	}
	return distributeRest(ctx, tx, tenant, owner)
}

// distributeRest brings the functions of a schema to the workers, and has the numbers of its tasks
// begin in the incarnation of the worker.
func distributeRest(ctx context.Context, tx pgx.Tx, tenant, owner string) error {
	name := postgres.Quote(Of(tenant))
	_, err := tx.Exec(ctx, `SELECT create_distributed_function(p.oid::regprocedure)
		FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace`, name)
	if err != nil {
		return postgres.Wrap(err, "distribute the functions of %q", tenant)
	}
	if err := RevokeOnWorkers(ctx, tx, tenant, owner); err != nil {
		return err
	}
	var present string
	err = tx.QueryRow(ctx, `SELECT `+name+`.history(tableoid) FROM `+name+`.numbering`).
		Scan(&present)
	if err != nil {
		return postgres.Wrap(err, "read the incarnation of %q", tenant)
	}
	_, err = tx.Exec(ctx, `UPDATE `+name+`.numbering SET history = $1`, present)
	return postgres.Wrap(err, "number the tasks of %q", tenant)
}

// workerRevokes are statements that take rights away on workers. Citus makes functions and tables
// there with the rights that Postgres gives by itself, adds those that were granted, and leaves out
// what was revoked. owner is the tenant's role, "" for none.
func workerRevokes(tenant, owner string) []string {
	name := postgres.Quote(Of(tenant))
	all := []string{`REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ` + name + ` FROM PUBLIC`}
	if owner != "" {
		all = append(all, `REVOKE UPDATE, DELETE, TRUNCATE ON `+name+`.audit FROM `+
			postgres.Quote(owner))
	}
	return all
}

// RevokeOnWorkers runs workerRevokes. A move makes tables anew.
func RevokeOnWorkers(ctx context.Context, q postgres.Execer, tenant, owner string) error {
	for _, statement := range workerRevokes(tenant, owner) {
		if _, err := q.Exec(ctx, statement); err != nil {
			return postgres.Wrap(err, "revoke rights in the schema of %q", tenant)
		}
	}
	return nil
}

// isDistributed reports whether a schema is distributed.
func isDistributed(ctx context.Context, db *sql.DB, schema string) (done bool, err error) {
	var citus bool
	err = db.QueryRowContext(ctx, `SELECT to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL`).
		Scan(&citus)
	if err != nil || !citus {
		return false, err
	}
	err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_schema
		WHERE schemaid = to_regnamespace($1))`, postgres.Quote(schema)).Scan(&done)
	return done, err
}
