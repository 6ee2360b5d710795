package settings

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// GrantSubmit lets a role of the database submit tasks of a tenant and send signals by SQL, and
// nothing else.
func (s *Settings) GrantSubmit(ctx context.Context, tenant, role string) error {
	return postgres.Wrap(s.permitSubmit(ctx, tenant, role, "GRANT", "TO"), "GrantSubmit(%q, %q)",
		tenant, role)
}

// RevokeSubmit takes back what GrantSubmit grants.
func (s *Settings) RevokeSubmit(ctx context.Context, tenant, role string) error {
	return postgres.Wrap(s.permitSubmit(ctx, tenant, role, "REVOKE", "FROM"),
		"RevokeSubmit(%q, %q)", tenant, role)
}

func (s *Settings) permitSubmit(ctx context.Context, tenant, role, verb, preposition string) error {
	switch role {
	case "":
		return asyncflow.InvalidField("role", "is required")
	case "public": // Postgres takes it for every role even when it is quoted
		return asyncflow.InvalidField("role",
			"is public, which is every role there is; it must be one")
	}
	err := pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		for _, right := range []string{`USAGE ON SCHEMA ` + postgres.Quote(schema.Of(tenant)),
			`EXECUTE ON FUNCTION ` + postgres.Quote(schema.Of(tenant)) + `.submit_task`,
			`EXECUTE ON FUNCTION ` + postgres.Quote(schema.Of(tenant)) + `.send_signal`} {
			if _, err := tx.Exec(ctx,
				verb+` `+right+` `+preposition+` `+postgres.Quote(role)); err != nil {
				return err
			}
		}
		return nil
	})
	switch postgres.State(err) {
	case pgerrcode.UndefinedObject:
		return asyncflow.InvalidField("role",
			"is %s, which is no role of this Postgres: make it with CREATE ROLE",
			postgres.Quote(role))
	case pgerrcode.InvalidSchemaName: // without roles of tenants
		return config.UnknownTenant(tenant)
	}
	return err
}
