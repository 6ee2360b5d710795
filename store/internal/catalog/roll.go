package catalog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Rolls returns the rolls of all table sets of a tenant, by set and position.
func (s *Core) Rolls(ctx context.Context, tenant string) ([]config.Roll, error) {
	of := postgres.Quote(schema.Of(tenant))
	size := s.SizeSQL(tenant, `to_regclass(format('%I.%I', $1::text,
		      concat_ws('_', 'task', nullif(table_set, ''), position)))`, false)
	rows, err := s.DB(tenant).Query(ctx, `SELECT table_set, position, coalesce(`+size+` / $2, 0),
		  opened_at, sealed_at, drained_at, ready_dropped, idle_since,
		  remaining_since, trim_at, remaining_types IS NOT NULL AND remaining_ids IS NULL,
		  history <> (SELECT `+of+`.history(tableoid) FROM `+of+`.rolls LIMIT 1)
		FROM `+of+`.rolls
		ORDER BY table_set, position`, schema.Of(tenant), leastTask)
	if err != nil {
		return nil, postgres.Wrap(err, "Rolls(%q)", tenant)
	}
	rolls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r config.Roll, err error) {
		var sealed, drained, idle, remaining, trim *time.Time
		err = row.Scan(&r.Set, &r.Position, &r.MaxTasks, &r.OpenedAt, &sealed, &drained,
			&r.ReadyDropped, &idle, &remaining, &trim, &r.Dropping, &r.Lost)
		r.SealedAt = postgres.OrZero(sealed)
		r.DrainedAt = postgres.OrZero(drained)
		r.IdleSince = postgres.OrZero(idle)
		r.RemainingSince = postgres.OrZero(remaining)
		r.TrimAt = postgres.OrZero(trim)
		return r, err
	})
	return rolls, postgres.Wrap(err, "Rolls(%q)", tenant)
}

// leastTask is the least size of a task's row in bytes, with its header and its alignment.
const leastTask = 60

// SizeSQL returns an expression for the bytes of a relation of a tenant, or with whole of its
// indexes and long values, too; null: there is no relation. On plain Postgres it is Postgres' own:
// each connection would compile the function table_size of each tenant, and keep it.
func (s *Core) SizeSQL(tenant, relation string, whole bool) string {
	if s.distributed {
		return fmt.Sprintf("%s.table_size(%s, %t)", postgres.Quote(schema.Of(tenant)), relation,
			whole)
	}
	own := "pg_relation_size"
	if whole {
		own = "pg_total_relation_size"
	}
	return own + "(" + relation + ")"
}

// samplePages is how many pages of a task table TasksIn counts; it counts smaller tables whole.
const samplePages = 100

// TasksIn returns about how many tasks a roll has: the rows of a sample of pages, scaled up to
// the size of the table.
func (s *Core) TasksIn(ctx context.Context, set *config.TableSet, position int) (int64, error) {
	var pages int64
	db := postgres.Unprepared{Q: s.DB(set.Tenant)}
	err := db.QueryRow(ctx, `SELECT `+s.SizeSQL(set.Tenant, `$1::text::regclass`, false)+`
		/ current_setting('block_size')::bigint`, set.Tables.Task(position)).Scan(&pages)
	if err != nil || pages == 0 {
		return 0, postgres.Wrap(err, "TasksIn(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	percent := min(100, 100*float64(samplePages)/float64(pages))
	sample := strconv.FormatFloat(percent, 'f', -1, 64) // Citus takes no parameter here
	var rows float64
	err = db.QueryRow(ctx, `SELECT count(*) FROM `+set.Tables.Task(position)+
		` TABLESAMPLE SYSTEM (`+sample+`)`).Scan(&rows)
	return int64(rows * 100 / percent),
		postgres.Wrap(err, "TasksIn(%q, %q, %d)", set.Tenant, set.Name, position)
}
