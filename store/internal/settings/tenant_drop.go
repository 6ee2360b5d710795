package settings

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// How a tenant is dropped: first its row is marked, and within a second or two no node knows
// of the tenant any more. Then its tables are dropped, a few in each transaction, as a
// transaction keeps its locks on everything that it drops. The schema and the row go last, in
// one transaction. After a crash the next node drops what is left.

// dropTables is how many tables one transaction drops: with their indexes and TOAST tables
// that makes some hundred locks.
const dropTables = 20

// ownTables are kept to the end: they have the last positions of the table sets.
const ownTables = `('task_types', 'table_sets', 'retired_types')`

// DueDrop is a tenant that is due to be dropped.
type DueDrop struct {
	Tenant string
	Since  time.Time // when the drop began; zero: it hasn't
	Tables int       // that are left
}

// DueDrops returns the deleted tenants after their grace.
func (s *tenants) DueDrops(ctx context.Context) ([]DueDrop, error) {
	rows, _ := s.core.Base.Query(ctx, `
		SELECT t.slug, t.dropping_at, (SELECT count(*)
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		  WHERE n.nspname = 'tenant_' || t.slug AND c.relkind = 'r')
		FROM asyncflow.tenants t WHERE t.drop_at <= $1 OR t.dropping_at IS NOT NULL
		ORDER BY t.drop_at, t.slug`, s.core.Clock.Now())
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DueDrop, err error) {
		var since *time.Time
		err = row.Scan(&d.Tenant, &since, &d.Tables)
		d.Since = postgres.OrZero(since)
		return d, err
	})
	return all, postgres.Wrap(err, "DueDrops")
}

// BeginDrop marks a deleted tenant whose grace is over as being dropped, and returns when the
// drop began; the zero time, if the tenant was restored or is gone.
func (s *tenants) BeginDrop(ctx context.Context, slug string) (since time.Time, err error) {
	err = audit.ChangeBase(ctx, s.core, slug, func(tx pgx.Tx) error {
		now := s.core.Clock.Now()
		err := tx.QueryRow(ctx, `UPDATE asyncflow.tenants
			SET dropping_at = coalesce(dropping_at, $2)
			WHERE slug = $1 AND (drop_at <= $2 OR dropping_at IS NOT NULL)
			RETURNING dropping_at`, slug, now).Scan(&since)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return since, postgres.Wrap(err, "BeginDrop(%q)", slug)
}

// Dropped says what a step of dropping a tenant did.
type Dropped struct {
	Tables int
	// Left reports whether there may be more to do now: the drop isn't over, and no table is in
	// use, nor the tenant's row.
	Left bool
}

// DropStep drops some tables of a tenant that is being dropped. The last step drops its schema
// and frees its name. Tables that are in use for long, as by a backup, stay for a later step.
func (s *tenants) DropStep(ctx context.Context, slug string) (out Dropped, err error) {
	ctx = postgres.Patient(ctx)
	role, err := s.core.Roles.Of(ctx, slug)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // another node has just ended it
		return out, nil
	}
	endPos, err := s.lastPosition(ctx, slug)
	if err != nil {
		return out, postgres.Wrap(err, "DropStep(%q)", slug)
	}
	var gone bool
	err = pgx.BeginFunc(ctx, s.core.DB(""), func(tx pgx.Tx) error {
		out.Tables, gone, err = s.dropTables(ctx, tx, slug, endPos)
		return err
	})
	if postgres.State(err) == pgerrcode.LockNotAvailable {
		s.core.Log.Debug("a table of a tenant that is being dropped is in use; later", "tenant",
			slug)
		return Dropped{}, nil
	}
	if err != nil {
		return Dropped{}, postgres.Wrap(err, "DropStep(%q)", slug)
	}
	if gone && role != "" {
		_, err = s.DropTenantRole(ctx, role) // a copy of this database may go on using it
	}
	out.Left = out.Tables > 0
	return out, postgres.Wrap(err, "DropStep(%q)", slug)
}

// dropTables drops some tables of a tenant, or ends the drop if there are none. endPos is the
// tenant's last position.
func (s *tenants) dropTables(
	ctx context.Context, tx pgx.Tx, slug string, endPos int,
) (dropped int, gone bool, err error) {
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
		return 0, false, err
	}
	if err := s.core.Roles.AsBase(ctx, tx); err != nil {
		return 0, false, err
	}
	var now time.Time
	err = tx.QueryRow(ctx, `SELECT clock_timestamp() FROM asyncflow.tenants
		WHERE slug = $1 AND dropping_at IS NOT NULL FOR UPDATE`, slug).Scan(&now)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if err := s.core.Roles.AsTenant(ctx, tx, slug); err != nil {
		return 0, false, err
	}
	tables, err := tablesOf(ctx, tx, slug)
	if err != nil {
		return 0, false, err
	}
	if len(tables) == 0 {
		return 0, true, s.finishDrop(ctx, tx, slug, now, endPos)
	}
	// CASCADE is for foreign keys of tables that stay for now.
	_, err = tx.Exec(ctx, `DROP TABLE IF EXISTS `+strings.Join(tables, ", ")+` CASCADE`)
	return len(tables), false, err
}

// tablesOf returns the next tables of a tenant's schema to drop.
func tablesOf(ctx context.Context, tx pgx.Tx, slug string) ([]string, error) {
	rows, _ := tx.Query(ctx,
		`SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname NOT IN `+ownTables+`
		ORDER BY c.relname LIMIT $2`, schema.Of(slug), dropTables)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (name string, err error) {
		err = row.Scan(&name)
		return postgres.Quote(schema.Of(slug)) + "." + postgres.Quote(name), err
	})
}

// lastPosition returns the last position that a tenant used; 0 if that isn't known any more.
func (s *tenants) lastPosition(ctx context.Context, slug string) (endPos int, err error) {
	schema := postgres.Quote(schema.Of(slug))
	var there bool
	err = s.core.DB(slug).QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`,
		schema+".table_sets").Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = s.core.DB(slug).QueryRow(ctx, `SELECT coalesce(max(end_pos), 0) FROM (
		SELECT end_pos FROM `+schema+`.table_sets
		UNION ALL SELECT end_pos FROM `+schema+`.retired_types) p`).Scan(&endPos)
	return endPos, err
}

// finishDrop drops what is left of a tenant, and keeps its last position and version. Citus' lists
// of schemas aren't for roles of tenants, so there our user drops the schema.
func (s *tenants) finishDrop(
	ctx context.Context, tx pgx.Tx, slug string, now time.Time, endPos int,
) error {
	if postgres.Distributed(tx) {
		if _, err := tx.Exec(ctx, `SELECT set_config('role', 'none', true)`); err != nil {
			return err
		}
	}
	schema := postgres.Quote(schema.Of(slug))
	if _, err := tx.Exec(ctx, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`); err != nil {
		return err
	}
	if err := s.core.Roles.AsBase(ctx, tx); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO asyncflow.retired_tenants AS r (slug, end_pos, version, dropped_at)
		SELECT slug, $2::int, version, $3 FROM asyncflow.tenants WHERE slug = $1
		ON CONFLICT (slug) DO UPDATE SET end_pos = greatest(r.end_pos, excluded.end_pos),
		  version = excluded.version, dropped_at = excluded.dropped_at`,
		slug, endPos, now)
	b.Queue(`DELETE FROM asyncflow.tenants WHERE slug = $1`, slug)
	b.Queue(`DELETE FROM asyncflow.submit_charges WHERE tenant = $1`, slug)
	// Databases of development versions made the table without its foreign key.
	b.Queue(`DELETE FROM asyncflow.tenant_trouble WHERE tenant = $1`, slug)
	return tx.SendBatch(ctx, b).Close()
}

// DropTenantRole drops the role of a tenant whose schema is gone, and reports whether it did:
// another database of the cluster, a copy of this one, may still use the role.
func (s *tenants) DropTenantRole(ctx context.Context, role string) (dropped bool, err error) {
	for range dropRoleTries {
		err = s.tryDropRole(ctx, role)
		// A database that used the role was dropped at that moment: cache lookup failed for
		// database.
		if postgres.State(err) != pgerrcode.InternalError {
			break
		}
	}
	if postgres.State(err) == pgerrcode.DependentObjectsStillExist {
		return false, nil
	}
	return err == nil, postgres.Wrap(err, "DropTenantRole(%q)", role)
}

const dropRoleTries = 5

func (s *tenants) tryDropRole(ctx context.Context, role string) error {
	return pgx.BeginFunc(ctx, s.core.DB(""), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL ROLE NONE`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DROP ROLE IF EXISTS `+postgres.Quote(role))
		return err
	})
}
