package store

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// GrantSubmit lets a role of the database submit tasks of a tenant by SQL, and nothing else.
func (s *settings) GrantSubmit(ctx context.Context, tenant, role string) error {
	return wrap(s.permitSubmit(ctx, tenant, role, "GRANT", "TO"), "GrantSubmit(%q, %q)", tenant, role)
}

// RevokeSubmit takes back what GrantSubmit grants.
func (s *settings) RevokeSubmit(ctx context.Context, tenant, role string) error {
	return wrap(s.permitSubmit(ctx, tenant, role, "REVOKE", "FROM"), "RevokeSubmit(%q, %q)", tenant,
		role)
}

func (s *settings) permitSubmit(ctx context.Context, tenant, role, verb, preposition string) error {
	switch role {
	case "":
		return asyncflow.InvalidField("role", "is required")
	case "public": // Postgres takes it for every role even when it is quoted
		return asyncflow.InvalidField("role", "is public, which is every role there is; it must be one")
	}
	err := pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
		for _, right := range []string{`USAGE ON SCHEMA ` + quote(schemaOf(tenant)),
			`EXECUTE ON FUNCTION ` + quote(schemaOf(tenant)) + `.submit_task`} {
			if _, err := tx.Exec(ctx, verb+` `+right+` `+preposition+` `+quote(role)); err != nil {
				return err
			}
		}
		return nil
	})
	switch sqlState(err) {
	case pgerrcode.UndefinedObject:
		return asyncflow.InvalidField("role",
			"is %s, which is no role of this Postgres: make it with CREATE ROLE", quote(role))
	case pgerrcode.InvalidSchemaName: // without roles of tenants
		return unknownTenant(tenant)
	}
	return err
}
