package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// Option says how a database is administered.
type Option func(*options)

type options struct{ noRoles bool }

func with(opts []Option) (all options) {
	for _, o := range opts {
		o(&all)
	}
	return all
}

// WithoutRoles makes and uses no database roles if off is set, see Config.NoRoles.
func WithoutRoles(off bool) Option { return func(all *options) { all.noRoles = off } }

// Migrate brings the schema asyncflow and every tenant's schema of the database
// at url to the newest version and returns what it found before. It sees to the roles of
// the second fence too. Several may run at once: they wait for each other.
func Migrate(ctx context.Context, url string, opts ...Option) ([]MigrationStatus, error) {
	if !with(opts).noRoles {
		return migrateFenced(ctx, url)
	}
	return eachSchema(ctx, url, func(schema string, set fs.FS) (MigrationStatus, error) {
		return migrateSchema(ctx, url, schema, set, "")
	})
}

// migrateFenced is Migrate with roles.
func migrateFenced(ctx context.Context, url string) ([]MigrationStatus, error) {
	first, err := migrateSchema(ctx, url, baseSchema, migrations.Asyncflow(), "")
	if err != nil {
		return nil, connectOr(err, url)
	}
	f, err := openFence(ctx, url)
	if err != nil {
		return nil, connectOr(err, url)
	}
	defer f.close(ctx)
	tenants, err := Tenants(ctx, url)
	if err != nil {
		return nil, err
	}
	names := []string{f.prefix}
	for _, tenant := range tenants {
		names = append(names, f.roleOf(tenant))
	}
	if err := f.need(ctx, names...); err != nil { // all at once, to be told of all
		return nil, err
	}
	if err := f.base(ctx); err != nil {
		return nil, err
	}
	all := []MigrationStatus{first}
	for _, tenant := range tenants {
		status, err := f.migrate(ctx, url, tenant)
		if err == nil {
			err = f.enter(ctx, tenant)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
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

// migrateSchema brings a schema to the newest version, as a role that owns it or, "", as
// whoever logs in. Then it makes the schema and enters the version, too.
func migrateSchema(ctx context.Context, url, schema string, set fs.FS, role string) (MigrationStatus, error) {
	var status MigrationStatus
	err := withProvider(ctx, url, schema, set, role, func(db *sql.DB, p *goose.Provider) error {
		if role == "" {
			if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+quote(schema)); err != nil && sqlState(err) != "23505" {
				return err // 23505: another process has just made it
			}
		}
		before, latest, err := p.GetVersions(ctx)
		if err != nil {
			return err
		}
		status = MigrationStatus{Schema: schema, Version: before, Latest: latest}
		if _, err = p.Up(ctx); err != nil || role != "" {
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
	err := withProvider(ctx, url, schema, set, "", func(db *sql.DB, p *goose.Provider) error {
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

func withProvider(ctx context.Context, url, schema string, set fs.FS, role string, do func(*sql.DB, *goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("withProvider: %w", err)
	}
	cfg.ConnectTimeout = connectTimeout
	cfg.DialFunc = dialer.DialContext
	cfg.RuntimeParams["search_path"] = quote(schema)
	cfg.RuntimeParams["application_name"] = "asyncflow migrate"
	cfg.RuntimeParams["client_min_messages"] = "warning"
	if role != "" {
		cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			return conn.Exec(ctx, `SET ROLE `+quote(role)).Close()
		}
	}
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
	err := s.base.QueryRow(ctx, `SELECT (SELECT coalesce(max(version_id), 0) FROM asyncflow.migrations),
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
