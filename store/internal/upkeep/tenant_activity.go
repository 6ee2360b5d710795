package upkeep

import (
	"context"
	"hash/maphash"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Background jobs visit a tenant only if something happened there since their last visit. Postgres
// counts the rows that transactions insert, update and delete in each table. One statement reads
// these counts for all tenants, and opens none of their tables: a connection that opened the tables
// of many tenants would keep all of them in its caches.
//
// A connection reports its counts once a second at most, and within 10 s after its last
// transaction. When Postgres crashed, or was told to, it begins to count anew: then all counts are
// of another epoch.

// Tables are tables of a tenant in which rows come and go.
type Tables struct {
	names []string
	roots []string // of the names of tables of each type, or of each roll
}

// The tables that background jobs look after.
var (
	// TokenTables hold the tokens of tasks, and the rolls.
	TokenTables = Tables{roots: []string{"ready", "wait", "lease"}, names: []string{"rolls"}}
	TallyTables = Tables{names: []string{"tallies"}}
	KeyTables   = Tables{names: []string{"idempotency_keys"}}
	// LifetimeTables say when tasks expire.
	LifetimeTables = Tables{names: []string{"lifetimes"}}
	// PlanTables say what is to be done at some time.
	PlanTables = Tables{names: []string{"schedules", "operations"}}
	// FollowUpTables say what transactions left to do, and what tasks depend on.
	FollowUpTables = Tables{names: []string{"outbox", "edges"}}
	// AlertTables are the tables that alerts are about, besides the configuration.
	AlertTables = Tables{
		names: []string{"tallies", "alert_episodes", "endpoint_minutes", "type_minutes",
			"schedules"},
		roots: TokenTables.roots,
	}
	// HistoryTables hold what the history is made of, and the alerts that are noted with it.
	HistoryTables = Tables{
		names: []string{"tallies", "endpoint_minutes", "type_minutes", "alert_episodes"},
		roots: TokenTables.roots,
	}
	// RecordTables hold rows that are kept for a while.
	RecordTables = Tables{names: []string{
		"operations", "alert_episodes", "endpoint_minutes", "type_minutes", "endpoint_secrets", "audit",
		"claim_windows", "votes", "voters", "checkpoints", "signals"}}
)

// epochSQL says what the counts begin with, and whether Postgres keeps them. With Citus they are on
// the servers of the rows.
const epochSQL = `
SELECT concat_ws(' ', pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time(),
    pg_stat_get_db_stat_reset_time(d.oid)),
  current_setting('track_counts')::boolean
  AND NOT ` + postgres.DistributedSQL + `
FROM pg_database d WHERE datname = current_database()`

// activitySQL mixes the counts of some tables of each tenant into one number. It finds the tables
// by the index on names; Postgres doesn't know how many there are, hence MATERIALIZED. (Measured
// with 1,000 tenants and 56,000 relations: 7 ms for three tables of each.)
const activitySQL = `
WITH c AS MATERIALIZED (
  SELECT relnamespace, bit_xor(hashint8extended(pg_stat_get_tuples_inserted(oid)
    + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid), oid::bigint)) AS count
  FROM pg_class WHERE relkind = 'r' AND ({tables}) GROUP BY relnamespace)
SELECT substr(nspname, length($1) + 1), count FROM c JOIN pg_namespace n ON n.oid = relnamespace
WHERE starts_with(nspname, $1)`

// condition is the one by which activitySQL finds the tables.
func (t Tables) condition() string {
	var any []string
	for _, root := range t.roots { // as LIKE 'root%', which takes no index where it is a parameter
		last := len(root) - 1
		any = append(any, "relname >= '"+root+"' AND relname < '"+
			root[:last]+string(root[last]+1)+"'")
	}
	if len(t.names) > 0 {
		any = append(any, "relname IN ('"+strings.Join(t.names, "', '")+"')")
	}
	return strings.Join(any, " OR ")
}

// Activity returns a number for each tenant that differs from an earlier one if rows of the tables
// were written in between. ok is false if this database doesn't tell.
func (s *Upkeep) Activity(
	ctx context.Context, tables Tables,
) (all map[string]uint64, ok bool, err error) {
	all = map[string]uint64{}
	var epoch string
	b := &pgx.Batch{}
	b.Queue(epochSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&epoch, &ok) })
	b.Queue(strings.Replace(activitySQL, "{tables}", tables.condition(), 1), schema.Of("")).
		Query(func(rows pgx.Rows) error {
			begin := maphash.String(epochSeed, epoch)
			var tenant string
			var count int64
			_, err := pgx.ForEachRow(rows, []any{&tenant, &count}, func() error {
				all[tenant] = uint64(count) ^ begin
				return nil
			})
			return err
		})
	err = s.core.Base.SendBatch(ctx, b).Close()
	return all, ok, postgres.Wrap(err, "Activity")
}

var epochSeed = maphash.MakeSeed()
