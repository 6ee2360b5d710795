package settings

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// MigrationStatus says how far a schema is behind this program.
type MigrationStatus = schema.Status

// Option says how a database is administered.
type Option func(*options)

type options struct{ noRoles, stale, notDistributed bool }

func with(opts []Option) (all options) {
	for _, o := range opts {
		o(&all)
	}
	return all
}

// WithoutRoles makes and uses no database roles if off is set, see Config.NoRoles.
func WithoutRoles(off bool) Option { return func(all *options) { all.noRoles = off } }

// NotDistributed makes tenants as if there were no Citus if off is set, see Config.NotDistributed.
func NotDistributed(off bool) Option { return func(all *options) { all.notDistributed = off } }

// StaleOnly limits Migrate to the tenants with a row that says that they need it. A node that
// starts does so: otherwise its start would take longer with each tenant.
func StaleOnly() Option { return func(all *options) { all.stale = true } }

// Migrate brings the schema asyncflow and every tenant's schema of the database at url to the
// newest version, and returns their status before. It also makes and grants the roles of the
// role fence. Concurrent calls wait for each other. After an error it also returns the status of
// what was done before.
func Migrate(ctx context.Context, url string, opts ...Option) ([]MigrationStatus, error) {
	if all := with(opts); all.stale {
		return schema.MigrateStale(ctx, url, all.noRoles)
	}
	return schema.Migrate(ctx, url, with(opts).noRoles)
}

// Gap is a role or a grant that a database lacks.
type Gap = schema.Gap

// Gaps returns the roles and grants that a database lacks, as after a restore, and changes nothing.
func Gaps(ctx context.Context, url string, opts ...Option) ([]Gap, error) {
	return schema.Gaps(ctx, url, with(opts).noRoles)
}

// Status returns the migration status of every schema and changes nothing.
func Status(ctx context.Context, url string) ([]MigrationStatus, error) {
	return schema.Statuses(ctx, url)
}
