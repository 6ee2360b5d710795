package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
)

// MigrationStatus tells how far a schema is behind this program.
type MigrationStatus struct {
	Schema  string
	Version int64 // applied
	Latest  int64 // known to this program
}

// Migrate brings the schema asyncflow and every tenant's schema of the database
// at url to the newest version and returns what it found before. Several may run
// at once: they wait for each other.
func Migrate(ctx context.Context, url string) ([]MigrationStatus, error) {
	return eachSchema(ctx, url, func(schema string, set fs.FS) (MigrationStatus, error) {
		return migrateSchema(ctx, url, schema, set)
	})
}

// Status tells the migration status of every schema and changes nothing.
func Status(ctx context.Context, url string) ([]MigrationStatus, error) {
	return eachSchema(ctx, url, func(schema string, set fs.FS) (MigrationStatus, error) {
		return schemaStatus(ctx, url, schema, set)
	})
}

func eachSchema(ctx context.Context, url string, do func(string, fs.FS) (MigrationStatus, error)) ([]MigrationStatus, error) {
	first, err := do(baseSchema, migrations.Asyncflow())
	if err != nil {
		return nil, connectOr(err, url)
	}
	all := []MigrationStatus{first}
	tenants, err := Tenants(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		status, err := do(schemaOf(tenant), migrations.Tenant())
		if err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
}

// connectOr tells a failure to connect from any other failure.
func connectOr(err error, url string) error {
	if state := sqlState(err); state == "" || state == "28P01" || state == "28000" || state == "3D000" {
		return connectError(url, err)
	}
	return err
}

func migrateSchema(ctx context.Context, url, schema string, set fs.FS) (MigrationStatus, error) {
	var status MigrationStatus
	err := withProvider(ctx, url, schema, set, func(db *sql.DB, p *goose.Provider) error {
		if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+quote(schema)); err != nil && sqlState(err) != "23505" {
			return err // 23505: another process has just made it
		}
		before, latest, err := p.GetVersions(ctx)
		if err != nil {
			return err
		}
		status = MigrationStatus{Schema: schema, Version: before, Latest: latest}
		if _, err = p.Up(ctx); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, `UPDATE asyncflow.tenants SET schema_version = $2 WHERE 'tenant_' || slug = $1`, schema, latest)
		if sqlState(err) == "42P01" { // a tenant before the base schema: CreateTenant says so
			err = nil
		}
		return err
	})
	return status, err
}

func schemaStatus(ctx context.Context, url, schema string, set fs.FS) (MigrationStatus, error) {
	status := MigrationStatus{Schema: schema}
	err := withProvider(ctx, url, schema, set, func(db *sql.DB, p *goose.Provider) error {
		sources := p.ListSources()
		status.Latest = sources[len(sources)-1].Version
		var exists bool
		err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, quote(schema)+".migrations").Scan(&exists)
		if err != nil || !exists {
			return err
		}
		status.Version, _, err = p.GetVersions(ctx)
		return err
	})
	return status, err
}

// How often the lock of migrations is asked for, in seconds, while another process holds
// it, and how many times: tenants may be made by several at once.
const (
	lockEvery = 1
	lockTries = 300
)

func withProvider(ctx context.Context, url, schema string, set fs.FS, do func(*sql.DB, *goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("withProvider: %w", err)
	}
	cfg.ConnectTimeout = connectTimeout
	cfg.RuntimeParams["search_path"] = quote(schema)
	cfg.RuntimeParams["application_name"] = "asyncflow migrate"
	cfg.RuntimeParams["client_min_messages"] = "warning"
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockEvery, lockTries))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, set,
		goose.WithTableName("migrations"), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	return do(db, p)
}

// checkSchema refuses a database of which a schema is behind this program.
func (s *Store) checkSchema(ctx context.Context) error {
	var base, tenants int64
	latest, latestTenant := latestVersion(migrations.Asyncflow()), latestVersion(migrations.Tenant())
	err := s.pool.QueryRow(ctx, `SELECT (SELECT coalesce(max(version_id), 0) FROM asyncflow.migrations),
		(SELECT coalesce(min(schema_version), $1) FROM asyncflow.tenants t WHERE `+notDropping+`)`, latestTenant).Scan(&base, &tenants)
	if err != nil && sqlState(err) != "42P01" {
		return connectError(s.cfg.URL, err)
	}
	switch {
	case err != nil || base < latest:
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"the database's schema is at version %d and this program needs %d: run asyncflow migrate up", base, latest)
	case tenants < latestTenant:
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"a tenant's schema is at version %d and this program needs %d: run asyncflow migrate up", tenants, latestTenant)
	}
	return nil
}

// latestVersion returns the number of the newest migration: its file's name
// begins with it.
func latestVersion(set fs.FS) int64 {
	names, _ := fs.Glob(set, "*.sql")
	var latest int64
	for _, name := range names {
		var n int64
		if _, err := fmt.Sscanf(name, "%d_", &n); err == nil {
			latest = max(latest, n)
		}
	}
	return latest
}
