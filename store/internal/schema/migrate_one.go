package schema

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// MigrateOne brings one schema to the newest version. It works as role, which owns the
// schema. Without a role ("") it works as the user of url; then it also makes the schema and
// enters the version in the tenant's row.
func MigrateOne(ctx context.Context, url, schema string, set fs.FS, role string) (Status, error) {
	return migrateOne(ctx, url, schema, set, role, byHand)
}

func migrateOne(
	ctx context.Context, url, schema string, set fs.FS, role string, most patience,
) (Status, error) {
	var status Status
	migrate := func(db *sql.DB, p *goose.Provider) error {
		if role == "" {
			if err := createSchema(ctx, db, schema); err != nil {
				return err
			}
		}
		before, latest, err := p.GetVersions(ctx)
		if err != nil {
			return err
		}
		status = Status{Schema: schema, Version: before, Latest: latest}
		if _, err = p.Up(ctx); err != nil || role != "" {
			return err
		}
		// Its new tables aren't its role's, so the grants are unknown: see MigrateStale.
		_, err = db.ExecContext(ctx, `UPDATE asyncflow.tenants
			SET schema_version = greatest(schema_version, $2), grants = NULL
			WHERE 'tenant_' || slug = $1`, schema, latest)
		if postgres.State(err) == pgerrcode.UndefinedTable {
			return nil // a tenant before the base schema: CreateTenant says so
		}
		return err
	}
	err := withProvider(ctx, url, schema, set, role, most, migrate)
	return status, err
}

// createSchema makes a schema on this server, unless it is there.
func createSchema(ctx context.Context, db *sql.DB, schema string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, byItself); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+postgres.Quote(schema))
	if postgres.State(err) == pgerrcode.UniqueViolation { // another process has just made it
		return nil
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// statusOf returns the status of one schema.
func statusOf(ctx context.Context, url, schema string, set fs.FS) (Status, error) {
	status := Status{Schema: schema}
	read := func(db *sql.DB, p *goose.Provider) error {
		sources := p.ListSources()
		status.Latest = sources[len(sources)-1].Version
		var exists bool
		err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`,
			postgres.Quote(schema)+"."+versionTable).Scan(&exists)
		if err != nil || !exists {
			return err
		}
		status.Version, _, err = p.GetVersions(ctx)
		return err
	}
	err := withProvider(ctx, url, schema, set, "", byHand, read)
	return status, err
}

// versionTable is the table in each schema in which goose writes what it has applied.
const versionTable = "schema_versions"

// withProvider calls do with a connection to a schema, as role or ("") as the user of url,
// and a goose provider of a set of migrations.
func withProvider(
	ctx context.Context, url, schema string, set fs.FS, role string, most patience,
	do func(*sql.DB, *goose.Provider) error,
) error {
	settings := maps.Clone(postgres.AdminSettings)
	settings["search_path"] = searchPath(schema)
	settings["application_name"] = "asyncflow migrate"
	settings["lock_timeout"] = most.tables
	var takeRole postgres.Setup
	if role != "" {
		takeRole = func(ctx context.Context, conn *pgconn.PgConn) error {
			return conn.Exec(ctx, `SET ROLE `+postgres.Quote(role)).Close()
		}
	}
	cfg, err := postgres.ConfigFor(url, settings, takeRole)
	if err != nil {
		return fmt.Errorf("withProvider: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	locker := &migrationLock{tableLock{db: db}, schema, most.others}
	p, err := goose.NewProvider(goose.DialectPostgres, db, set, goose.WithTableName(versionTable),
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	return do(db, p)
}

// searchPath returns the search path of migrations, which name the tables of their schema only by
// their own name. Postgres's own schema comes first without being named.
func searchPath(schema string) string { return postgres.Quote(schema) + `, pg_temp` }

// LatestTenant returns the number of the newest migration of tenants' schemas.
func LatestTenant() int64 { return latestVersion(migrations.Tenant()) }

// latestVersion returns the number of the newest migration.
func latestVersion(set fs.FS) int64 {
	names, _ := fs.Glob(set, "*.sql")
	var latest int64
	for _, name := range names {
		latest = max(latest, versionOf(name))
	}
	return latest
}

// versionOf returns the number at the beginning of a migration's name.
func versionOf(name string) (version int64) {
	_, _ = fmt.Sscanf(name, "%d_", &version)
	return version
}
