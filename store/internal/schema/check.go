package schema

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Check refuses a database with a schema that is behind this program, or that a development version
// made. url is for the error of a database that can't be reached.
func Check(ctx context.Context, db *pgxpool.Pool, url string) error {
	var base, tenants int64
	latest := latestVersion(migrations.Asyncflow())
	latestTenant := LatestTenant()
	err := db.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(version_id), 0) FROM asyncflow.schema_versions),
		  (SELECT coalesce(min(schema_version), $1) FROM asyncflow.tenants t
		  WHERE `+notDropping+`)`,
		latestTenant).Scan(&base, &tenants)
	if err != nil && postgres.State(err) != pgerrcode.UndefinedTable {
		return postgres.ConnectError(url, err)
	}
	if err != nil {
		if err := RefuseDevelopment(ctx, db); err != nil {
			return postgres.ConnectErrorOr(err, url)
		}
	}
	switch {
	case err != nil || base < latest:
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"the database's schema is at version %d and this program needs %d: "+
				"run asyncflow migrate up", base, latest)
	case tenants < latestTenant:
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"a tenant's schema is at version %d and this program needs %d: "+
				"run asyncflow migrate up", tenants, latestTenant)
	}
	return nil
}
