package schema

import (
	"context"
	"io/fs"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Status says how far a schema is behind this program.
type Status struct {
	Schema  string
	Version int64 // the newest migration that was applied
	Latest  int64 // the newest migration that this program has

	Restored []string // statements that gave rights back or took them away
}

// Migrate brings the schema asyncflow and every tenant's schema of the database at url to the
// newest version, and returns their status before. It also makes and grants the roles, unless
// noRoles is set. Concurrent calls wait for each other. After an error, the status of what was done
// before it is returned, too: rights that were given back are given back only once.
func Migrate(ctx context.Context, url string, noRoles bool) ([]Status, error) {
	if err := refuseDevelopmentAt(ctx, url); err != nil {
		return nil, err
	}
	if noRoles {
		all, err := eachSchema(ctx, url, allSQL, migratePlain(ctx, url))
		if err != nil {
			return all, err
		}
		return all, closeDistributed(ctx, url)
	}
	return migrateWithRoles(ctx, url, func(_ *RoleFence, ctx context.Context) ([]string, error) {
		return tenantsOf(ctx, url, allSQL)
	})
}

// migratePlain migrates a schema without roles.
func migratePlain(ctx context.Context, url string) func(string, fs.FS) (Status, error) {
	return func(schema string, set fs.FS) (Status, error) {
		status, err := MigrateOne(ctx, url, schema, set, "")
		if err != nil {
			return status, err
		}
		conn, err := postgres.Connect(ctx, url)
		if err != nil {
			return status, postgres.ConnectError(url, err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		tenant, _ := strings.CutPrefix(schema, Of(""))
		if schema == Base {
			tenant = ""
		}
		status.Restored, err = RestoreRights(ctx, conn, tenant, "")
		return status, err
	}
}

// migrateWithRoles is Migrate with roles, for the tenants that choose returns.
func migrateWithRoles(
	ctx context.Context, url string, choose func(*RoleFence, context.Context) ([]string, error),
) ([]Status, error) {
	first, err := MigrateOne(ctx, url, Base, migrations.Asyncflow(), "")
	if err != nil {
		return nil, postgres.ConnectErrorOr(err, url)
	}
	all := []Status{first}
	f, err := OpenRoleFence(ctx, url)
	if err != nil {
		return all, postgres.ConnectErrorOr(err, url)
	}
	defer f.Close(ctx)
	tenants, err := choose(f, ctx)
	if err != nil {
		return all, err
	}
	names := []string{f.prefix}
	for _, tenant := range tenants {
		names = append(names, f.RoleOf(tenant))
	}
	if err := f.needEverywhere(ctx, url, names...); err != nil { // the error names all
		return all, err
	}
	if err := f.grantBase(ctx); err != nil {
		return all, err
	}
	if all[0].Restored, err = RestoreRights(ctx, f.db, "", ""); err != nil {
		return all, err
	}
	for _, tenant := range tenants {
		status, err := f.migrateAndEnter(ctx, url, tenant)
		if all = withStatus(all, status, err); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (f *RoleFence) migrateAndEnter(
	ctx context.Context, url, tenant string,
) (Status, error) {
	status, err := f.Migrate(ctx, url, tenant)
	if err != nil {
		return status, err
	}
	return status, f.Enter(ctx, tenant)
}

// withStatus adds the status of a schema, which counts after an error only if rights were given
// back.
func withStatus(all []Status, status Status, err error) []Status {
	if err != nil && len(status.Restored) == 0 {
		return all
	}
	return append(all, status)
}

// Statuses returns the migration status of every schema and changes nothing.
func Statuses(ctx context.Context, url string) ([]Status, error) {
	if err := refuseDevelopmentAt(ctx, url); err != nil {
		return nil, mayNotLook(err)
	}
	all, err := eachSchema(ctx, url, allSQL, func(schema string, set fs.FS) (Status, error) {
		return statusOf(ctx, url, schema, set)
	})
	return all, mayNotLook(err)
}

// mayNotLook explains the error of a user without rights in the schemas, such as one for
// monitoring.
func mayNotLook(err error) error {
	if !postgres.IsRefused(err) {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err, Message: "this user may " +
		"not look at the schemas: use that of the nodes (" + err.Error() + ")"}
}

// eachSchema calls do for the schema asyncflow and for the schema of each tenant that a query
// selects, and returns all results, after an error those before it.
func eachSchema(
	ctx context.Context, url, query string, do func(schema string, set fs.FS) (Status, error),
) ([]Status, error) {
	first, err := do(Base, migrations.Asyncflow())
	all := withStatus(nil, first, err)
	if err != nil {
		return all, postgres.ConnectErrorOr(err, url)
	}
	tenants, err := tenantsOf(ctx, url, query)
	if err != nil {
		return all, err
	}
	for _, tenant := range tenants {
		status, err := do(Of(tenant), migrations.Tenant())
		if all = withStatus(all, status, err); err != nil {
			return all, err
		}
	}
	return all, nil
}
