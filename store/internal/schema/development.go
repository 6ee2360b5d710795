package schema

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// developmentTable is where programs from before 0.1 wrote which migrations they had applied. Its
// name differs from versionTable, so the two kinds of databases differ at any version. A database
// that has both is a new one: an application of the same user may have made a table of that name.
const developmentTable = "asyncflow.migrations"

// RefuseDevelopment refuses a database with a schema from before 0.1: no migration leads on from
// there. It changes nothing.
func RefuseDevelopment(ctx context.Context, db querier) error {
	var exists bool
	err := db.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NULL`,
		developmentTable, Base+"."+versionTable).Scan(&exists)
	if err != nil || !exists {
		return postgres.Wrap(err, "look for %s", developmentTable)
	}
	var version int64
	err = db.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+developmentTable).
		Scan(&version)
	if err != nil {
		return postgres.Wrap(err, "read %s", developmentTable)
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the database has a schema of a development version before 0.1 (%s is at %d), which this "+
			"program can't migrate: make a new database; before that, finish or export the tasks "+
			"with the old program", developmentTable, version)
}

// refuseDevelopmentAt is RefuseDevelopment for the database at url.
func refuseDevelopmentAt(ctx context.Context, url string) error {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	return postgres.ConnectErrorOr(RefuseDevelopment(ctx, conn), url)
}
