package settings

import (
	"context"
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// maxRoleName is how many bytes of a name Postgres takes. It cuts a longer one, which would then be
// remembered and looked up under another name than it has.
const maxRoleName = 63

// GrantSubmit lets a role of the database submit tasks of a tenant and send signals by SQL, and
// nothing else, also functions of before that a migration has kept for views which depend on them.
// It is remembered, for migrations after a restore.
func (s *tenants) GrantSubmit(ctx context.Context, tenant, role string) error {
	err := s.permitSubmit(ctx, tenant, role, "GRANT", "TO")
	if err != nil {
		return postgres.Wrap(err, "GrantSubmit(%q, %q)", tenant, role)
	}
	_, err = s.core.DB("").Exec(ctx, `UPDATE asyncflow.tenants
		SET submitters = array_append(array_remove(submitters, $2::text), $2::text),
		  submitter_ids = submitter_ids || jsonb_build_object($2::text,
		    `+schema.SubmitterIDSQL+`)
		WHERE slug = $1`, tenant, role)
	return postgres.Wrap(err, "GrantSubmit(%q, %q)", tenant, role)
}

// RevokeSubmit takes back what GrantSubmit grants. A role that is gone is forgotten.
func (s *tenants) RevokeSubmit(ctx context.Context, tenant, role string) error {
	if len(role) > maxRoleName {
		return s.permitSubmit(ctx, tenant, role, "REVOKE", "FROM")
	}
	var gone bool
	err := s.core.DB("").QueryRow(ctx, `UPDATE asyncflow.tenants
		SET submitters = array_remove(submitters, $2::text),
		  submitter_ids = submitter_ids - $2::text
		WHERE slug = $1 AND $2::text = ANY (submitters)
		RETURNING NOT EXISTS (SELECT FROM pg_roles WHERE rolname = $2::text)`, tenant, role).
		Scan(&gone)
	if gone || err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return postgres.Wrap(err, "RevokeSubmit(%q, %q)", tenant, role)
	}
	return postgres.Wrap(s.permitSubmit(ctx, tenant, role, "REVOKE", "FROM"),
		"RevokeSubmit(%q, %q)", tenant, role)
}

func (s *tenants) permitSubmit(ctx context.Context, tenant, role, verb, preposition string) error {
	switch role {
	case "":
		return asyncflow.InvalidField("role", "is required")
	case "public": // Postgres takes it for every role even when it is quoted
		return asyncflow.InvalidField("role",
			"is public, which is every role there is; it must be one")
	}
	if len(role) > maxRoleName {
		return asyncflow.InvalidField("role", "has %d bytes; names of Postgres have at most %d",
			len(role), maxRoleName)
	}
	in := postgres.Quote(schema.Of(tenant))
	rights := []string{`USAGE ON SCHEMA ` + in, `EXECUTE ON FUNCTION ` + in + `.submit_task`,
		`EXECUTE ON FUNCTION ` + in + `.send_signal`}
	err := pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		kept, err := keptSubmits(ctx, tx, tenant)
		if err != nil {
			return err
		}
		for _, right := range append(rights, kept...) {
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

// keptSubmits returns the rights to call functions that were submit_task before a migration.
func keptSubmits(ctx context.Context, tx pgx.Tx, tenant string) ([]string, error) {
	rows, _ := tx.Query(ctx, `SELECT 'EXECUTE ON FUNCTION ' || p.oid::regprocedure
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = $1 AND p.proname ~ '^submit_task_[0-9]+$'`, schema.Of(tenant))
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
