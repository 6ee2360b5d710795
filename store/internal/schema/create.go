package schema

import (
	"context"
	"database/sql"
	"io/fs"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/database"

	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Create makes a tenant's schema as conn's user, brings it to the newest version, and calls enter,
// all in one transaction. It reports whether it has called enter. If not, MigrateOne must go on:
// the schema was there, or a migration is left that can't run in a transaction.
func Create(
	ctx context.Context, conn *pgx.Conn, tenant string, enter func(pgx.Tx) error,
) (bool, error) {
	return create(ctx, conn, migrations.Tenant(), newTenant{tenant: tenant}, enter)
}

// newTenant says what to make for a new tenant.
type newTenant struct {
	tenant string
	role   string   // owns the schema and all in it; "": the connection's user does
	grants []string // statements that the owner runs in the end
}

// create is Create with a set of migrations.
func create(
	ctx context.Context, conn *pgx.Conn, set fs.FS, n newTenant, enter func(pgx.Tx) error,
) (done bool, err error) {
	s, whole, err := newScript(ctx, set, Of(n.tenant))
	if err != nil {
		return false, err
	}
	begin := `CREATE SCHEMA ` + postgres.Quote(Of(n.tenant))
	if n.role != "" {
		role := postgres.Quote(n.role)
		begin += ` AUTHORIZATION ` + role + `; SET LOCAL ROLE ` + role
		s.end.Queue(`RESET ROLE`)
	}
	if whole {
		s.add(n.grants...)
	}
	there := false
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, begin+";\n"+s.sql.String()); err != nil {
			state := postgres.State(err)
			// A unique violation: another process has just made it.
			there = state == pgerrcode.DuplicateSchema || state == pgerrcode.UniqueViolation
			return err
		}
		if err := tx.SendBatch(ctx, &s.end).Close(); err != nil || !whole {
			return err
		}
		return enter(tx)
	})
	if there {
		return false, nil
	}
	return whole && err == nil, postgres.Wrap(err, "make the schema of %q", n.tenant)
}

// script is all that brings a new schema to a version: goose would take a transaction for each
// migration, and several round trips.
type script struct {
	database.DBTxConn // of goose's store; nil, as only ExecContext is used

	sql strings.Builder
	end pgx.Batch // with arguments: the rows of goose's table of versions
}

// newScript returns the script for a new schema, and whether it is whole. Otherwise it ends before
// a migration that can't run in a transaction; goose then applies the rest.
func newScript(ctx context.Context, set fs.FS, schema string) (*script, bool, error) {
	s := &script{}
	names, err := fs.Glob(set, "*.sql") // in order, as their numbers are equally long
	if err != nil {
		return nil, false, err
	}
	// Each migration has the settings of the session, whatever the one before has set. The bodies of
	// functions aren't checked: for that Postgres reads all tenants' functions of the same name.
	begin := `RESET ALL; SET LOCAL check_function_bodies = off; SET LOCAL search_path = ` +
		postgres.Quote(schema)
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, false, err
	}
	s.add(begin)
	if err := store.CreateVersionTable(ctx, s); err != nil {
		return nil, false, err
	}
	version := int64(0) // the row that goose writes before any migration
	for i := 0; ; i++ {
		if err := store.Insert(ctx, s, database.InsertRequest{Version: version}); err != nil {
			return nil, false, err
		}
		if i == len(names) {
			return s, true, nil
		}
		migration, err := fs.ReadFile(set, names[i])
		if err != nil {
			return nil, false, err
		}
		up, ok := upOf(string(migration))
		if !ok {
			return s, false, nil
		}
		s.add(begin, up)
		version = versionOf(names[i])
	}
}

// add adds statements to the script.
func (s *script) add(statements ...string) {
	for _, statement := range statements {
		s.sql.WriteString(statement + ";\n")
	}
}

// ExecContext adds a statement of goose's store to the script.
func (s *script) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	if len(args) == 0 {
		s.add(query)
	} else {
		s.end.Queue(query, args...)
	}
	return nil, nil
}

// upOf returns what a new schema needs of a migration, see migrations.Tenant. It reports false if
// goose must apply it.
func upOf(migration string) (up string, ok bool) {
	var b strings.Builder
	in, upgrade, annotated := false, false, false
	for line := range strings.Lines(migration) {
		switch mark := strings.TrimSpace(line); mark {
		case "-- +goose Up", "-- +goose Down":
			in = mark == "-- +goose Up"
		case "-- +asyncflow UpgradeBegin", "-- +asyncflow UpgradeEnd":
			upgrade = mark == "-- +asyncflow UpgradeBegin"
		case "-- +goose StatementBegin", "-- +goose StatementEnd":
		default:
			if strings.HasPrefix(mark, "-- +") {
				annotated = true
			} else if in && !upgrade {
				b.WriteString(line)
			}
		}
	}
	up = strings.TrimSpace(b.String())
	return up, up == "" || !annotated
}
