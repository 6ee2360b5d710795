package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/database"

	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// ErrThere says that a schema can't be made, as there is one of that name. The transaction has
// failed. Migrate or MigrateOne can go on from what is there.
var ErrThere = errors.New("there is such a schema")

// asUser gives the rest of a transaction the user of the connection, whatever role it has taken.
const asUser = `SET LOCAL role TO DEFAULT`

// Create makes a tenant's schema at the newest version, in one round trip. distributed gives it to
// a worker of Citus, see Distributes.
func Create(ctx context.Context, tx pgx.Tx, tenant string, distributed bool) error {
	if err := create(ctx, tx, newTenant{tenant: tenant}); err != nil || !distributed {
		return err
	}
	return Distribute(ctx, tx, tenant, "")
}

// newTenant says what to make for a new tenant.
type newTenant struct {
	tenant string
	role   string   // owns the schema and all in it; "": the transaction's user does
	grants []string // statements that the owner runs in the end
}

func create(ctx context.Context, tx pgx.Tx, n newTenant) error {
	name := postgres.Quote(Of(n.tenant))
	role := postgres.Quote(n.role)
	begin := []string{`CREATE SCHEMA ` + name}
	var end []string
	if n.role != "" { // so that the migrations need no REVOKE, which reads all tenants' functions
		begin = []string{begin[0] + ` AUTHORIZATION ` + role, `SET LOCAL ROLE ` + role,
			`ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC`}
		end = append(n.grants, `ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC`,
			asUser)
	}
	versions, err := versionsOf(ctx, migrations.Tenant())
	if err != nil {
		return err
	}
	// The bodies of functions aren't checked: for that Postgres reads all tenants' functions of the
	// same name.
	script := slices.Concat([]string{byItself}, begin, []string{
		`SET LOCAL check_function_bodies = off; SET LOCAL search_path = ` +
			searchPath(Of(n.tenant)),
		versions, migrations.NewTenant(),
		`SET LOCAL check_function_bodies TO DEFAULT; SET LOCAL search_path = ` +
			postgres.SearchPath}, end)
	_, err = tx.Exec(ctx, strings.Join(script, ";\n"))
	switch postgres.State(err) {
	case pgerrcode.DuplicateSchema, pgerrcode.UniqueViolation: // another process has just made it
		return ErrThere
	}
	return postgres.Wrap(err, "make the schema of %q", n.tenant)
}

// versionsOf returns the statements that make goose's table of versions in a schema that has all
// migrations of a set.
func versionsOf(ctx context.Context, set fs.FS) (string, error) {
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return "", err
	}
	var made statements
	if err := store.CreateVersionTable(ctx, &made); err != nil {
		return "", err
	}
	names, err := fs.Glob(set, "*.sql") // in order, as their numbers are equally long
	rows := []string{"(0, true)"}       // the one that goose writes before any migration
	for _, name := range names {
		rows = append(rows, fmt.Sprintf("(%d, true)", versionOf(name)))
	}
	return made.sql + ";\nINSERT INTO " + versionTable + " (version_id, is_applied) VALUES " +
		strings.Join(rows, ", "), err
}

// statements takes the statement of goose's store instead of a database.
type statements struct {
	database.DBTxConn // nil, as only ExecContext is used

	sql string
}

// ExecContext takes a statement.
func (s *statements) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	s.sql = query
	return nil, nil
}
