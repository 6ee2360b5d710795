package schema

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// besideNodes is the patience of a migration that a node runs. Another node may be running the same
// one, and the tenant's tasks wait behind each lock of a table that it waits for.
var besideNodes = patience{10 * time.Second, "500ms"}

// MigrateTenant brings one tenant's schema to the newest version beside nodes that use it, and
// returns its status before. It gives up soon where others have tables locked: then some of the
// migrations may be done, and the next call goes on. A tenant that is current already, or is being
// dropped, stays as it is.
func MigrateTenant(ctx context.Context, url, tenant string, noRoles bool) (Status, error) {
	if noRoles {
		return migrateBehind(ctx, url, tenant)
	}
	f, err := openRoleFence(ctx, url, besideNodes)
	if err != nil {
		return Status{}, postgres.ConnectErrorOr(err, url)
	}
	defer f.Close(ctx)
	if behind, err := isBehind(ctx, f.db, tenant); err != nil || !behind {
		return Status{}, err
	}
	if err := f.needEverywhere(ctx, url, f.RoleOf(tenant)); err != nil {
		return Status{}, err
	}
	status, err := f.migrate(ctx, url, tenant, besideNodes)
	if err != nil {
		return status, err
	}
	return status, f.Enter(ctx, tenant)
}

// migrateBehind is MigrateTenant without roles.
func migrateBehind(ctx context.Context, url, tenant string) (Status, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return Status{}, postgres.ConnectError(url, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if behind, err := isBehind(ctx, conn, tenant); err != nil || !behind {
		return Status{}, err
	}
	status, err := migrateOne(ctx, url, Of(tenant), migrations.Tenant(), "", besideNodes)
	if err != nil {
		return status, postgres.ConnectErrorOr(err, url)
	}
	status.Restored, err = RestoreRights(ctx, conn, tenant, "")
	return status, err
}

// isBehind reports whether a tenant's schema is behind this program.
func isBehind(ctx context.Context, q querier, tenant string) (behind bool, err error) {
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM asyncflow.tenants t
		WHERE slug = $1 AND schema_version < $2 AND `+notDropping+`)`, tenant, LatestTenant()).
		Scan(&behind)
	return behind, postgres.Wrap(err, "look at the schema of %q", tenant)
}
