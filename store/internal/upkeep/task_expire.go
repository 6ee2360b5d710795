package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// ExpireBatch is the most tasks that one transaction of ExpireTasks looks at. Transactions of 1,000
// keep tasks of other types waiting longer: see "Tasks that expire at once" in docs/performance.md.
const ExpireBatch = 400

// ExpireTasks ends the tasks of a type that are live at the end of their lifetime, and tidies up
// after tasks that began or ended in time. It looks at ExpireBatch tasks at most, the ones due
// first, and returns how many it changed.
func (s *Upkeep) ExpireTasks(ctx context.Context, t *config.Type) (int, error) {
	var expired trees.Expired
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		expired = trees.Expired{} // another node may hold the lock by a second try
		step := func(tx pgx.Tx, now time.Time) (err error) {
			expired, err = expireSome(ctx, tx, t, now)
			return err
		}
		return s.core.Exclusively(ctx, t.Tenant, "expire", step)
	})
	if err != nil {
		return 0, postgres.Wrap(err, "ExpireTasks(%q, %q)", t.Tenant, t.Name)
	}
	expired.Announce(ctx, s.hot, t)
	if len(expired.Settled) > 0 { // parents, dependents and children hear of it
		s.core.TellFollowUp(t.Tenant)
	}
	return expired.Changed, nil
}

// dueSQL reads the first tasks of a type at the end of their lifetime.
const dueSQL = `SELECT id FROM {lifetimes}
WHERE type = $1 AND expires_at <= $2 ORDER BY expires_at LIMIT $3`

func expireSome(
	ctx context.Context, tx pgx.Tx, t *config.Type, now time.Time,
) (x trees.Expired, err error) {
	if err := postgres.Pin(ctx, tx); err != nil {
		return x, err
	}
	rows, _ := tx.Query(ctx, t.SQL(0, dueSQL), t.Number(), now, ExpireBatch)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return x, err
	}
	if len(ids) == 0 {
		return x, postgres.ErrIdle
	}
	return trees.Expire(ctx, tx, t, ids, now)
}

// firstLifetimeSQL walks the index on (type, expires_at) from type to type. The base role may read
// these two columns only.
const firstLifetimeSQL = `SELECT i, (
  WITH RECURSIVE first AS (
    (SELECT type, expires_at FROM {schema}.lifetimes ORDER BY type, expires_at LIMIT 1)
    UNION ALL
    SELECT n.type, n.expires_at FROM first f CROSS JOIN LATERAL (
      SELECT type, expires_at FROM {schema}.lifetimes l WHERE l.type > f.type
      ORDER BY type, expires_at LIMIT 1) n)
  SELECT min(expires_at) FROM first)`

// FirstLifetimes returns when the first lifetime of each of some tenants ends. It leaves out
// tenants without any.
func (s *Upkeep) FirstLifetimes(
	ctx context.Context, tenants []string,
) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants, firstLifetimeSQL)
	return all, postgres.Wrap(err, "FirstLifetimes")
}

// TypesWithExpired returns the types of a tenant in which a lifetime is over.
func (s *Upkeep) TypesWithExpired(ctx context.Context, tenant string) ([]*config.Type, error) {
	return s.typesExpiring(ctx, tenant, s.core.Clock.Now())
}

// typesExpiring returns the types of a tenant in which a lifetime ends by a time.
func (s *Upkeep) typesExpiring(
	ctx context.Context, tenant string, by time.Time,
) ([]*config.Type, error) {
	tables := config.NewTables(tenant, config.SharedSet)
	rows, _ := s.core.DB(tenant).Query(ctx, tables.SQL(0, `SELECT t.name
		FROM {types} t WHERE EXISTS (SELECT FROM {lifetimes} l
		  WHERE l.type = t.number AND l.expires_at <= $1)`), by)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var all []*config.Type
	for _, name := range names {
		t, err := s.core.Catalog.Type(tenant, name)
		if err != nil {
			continue // it was just deleted
		}
		all = append(all, t)
	}
	return all, postgres.Wrap(err, "typesExpiring(%q)", tenant)
}

// expiringLooks is how many lifetimes WillExpire looks at in a type at most, beside its limit: so
// many tasks may be running.
const expiringLooks = 10_000

// WillExpire returns how many tasks of each type of a tenant expire by a time and are not running.
// It counts up to a limit and somewhat beyond, by an index that only tasks with a lifetime are in.
func (s *Upkeep) WillExpire(
	ctx context.Context, tenant string, by time.Time, limit int,
) (map[string]int64, error) {
	types, err := s.typesExpiring(ctx, tenant, by)
	all := map[string]int64{}
	b := &pgx.Batch{}
	for _, t := range types {
		b.Queue(t.SQL(0, `SELECT count(*) FROM (
			  SELECT type, id FROM {lifetimes} WHERE type = $1 AND expires_at <= $2
			  ORDER BY expires_at LIMIT $3) l
			WHERE NOT EXISTS (SELECT FROM {lease} k WHERE k.type = l.type AND k.id = l.id)`),
			t.Number(), by, limit+expiringLooks).QueryRow(func(row pgx.Row) error {
			var n int64
			err := row.Scan(&n)
			all[t.Name] = n
			return err
		})
	}
	if err == nil && b.Len() > 0 {
		err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
			return tx.SendBatch(ctx, b).Close()
		})
	}
	return all, postgres.Wrap(err, "WillExpire(%q)", tenant)
}

// DryRunExpireTasks counts the lifetimes of a tenant's tasks that are over, by type.
func (s *Upkeep) DryRunExpireTasks(ctx context.Context, tenant string) ([]catalog.Due, error) {
	return s.countByType(ctx, tenant, `SELECT t.name, count(*)
		FROM {schema}.lifetimes l JOIN {schema}.task_types t ON t.number = l.type
		WHERE l.expires_at <= $1 GROUP BY t.name ORDER BY t.name`, s.core.Clock.Now())
}
