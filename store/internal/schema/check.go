package schema

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Check refuses a database that nobody has migrated for this program: the schema asyncflow is
// behind, or the schemas of all tenants are. It also refuses one that a development version made. A
// node migrates single tenants by itself, see MigrateTenant. url is for the error of a database
// that can't be reached.
func Check(ctx context.Context, db *pgxpool.Pool, url string) error {
	if err := CheckBase(ctx, db, url); err != nil {
		return err
	}
	var tenants int64
	latest := LatestTenant()
	err := db.QueryRow(ctx, `SELECT coalesce(max(schema_version), $1) FROM asyncflow.tenants t
		WHERE `+notDropping, latest).Scan(&tenants)
	if err != nil {
		return postgres.ConnectError(url, err)
	}
	if tenants < latest {
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"a tenant's schema is at version %d and this program needs %d: "+
				"run asyncflow migrate up", tenants, latest)
	}
	return nil
}

// CheckBase is Check without a look at the tenants.
func CheckBase(ctx context.Context, db *pgxpool.Pool, url string) error {
	var base int64
	latest := latestVersion(migrations.Asyncflow())
	err := db.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM asyncflow.schema_versions`).
		Scan(&base)
	if err != nil && postgres.State(err) != pgerrcode.UndefinedTable {
		return postgres.ConnectError(url, err)
	}
	if err != nil {
		if err := RefuseDevelopment(ctx, db); err != nil {
			return postgres.ConnectErrorOr(err, url)
		}
	}
	if err != nil || base < latest {
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"the database's schema is at version %d and this program needs %d: "+
				"run asyncflow migrate up", base, latest)
	}
	return nil
}
