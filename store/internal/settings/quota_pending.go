package settings

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// CountLive counts a tenant's tasks that are not final, with those that are to be made now and
// aren't yet: tasks that attempts started, and children of fan-outs.
func (s *tenants) CountLive(ctx context.Context, tenant string) (n int64, err error) {
	err = s.core.DB(tenant).QueryRow(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT ((SELECT coalesce(sum(submitted - succeeded - failed - cancelled), 0) FROM {tallies})
		  + (SELECT coalesce(sum(s.count - cardinality(s.ids)), 0) FROM {outbox} o
		    JOIN {spawns} s ON s.type = o.type AND s.id = o.id AND s.seq = o.at
		    WHERE o.kind = 'start')
		  + (SELECT coalesce(sum(greatest(0, least(f.count - f.spawned,
		      coalesce(nullif((f.rule ->> 'max_parallel')::int, 0),
		        (f.rule -> 'quorum' ->> 'votes')::int, f.count)
		      - (f.spawned - f.succeeded - f.failed - f.cancelled)))), 0)
		    FROM (SELECT DISTINCT type, id, fan_out FROM {outbox} WHERE kind = 'spawn') o
		    JOIN {fan_outs} f ON f.type = o.type AND f.id = o.id AND f.seq = o.fan_out
		    WHERE NOT f.closed AND NOT f.stopped))::bigint`)).Scan(&n)
	return n, postgres.Wrap(err, "CountLive(%q)", tenant)
}

// KnownKeys reports for each task whether its key stands for a task already, and surely goes on to
// do so: a key that stands for a task until that is final may be free in a moment. Of a task that
// replaces another one the second doesn't matter: it takes no key, see NewTask.OnlyReplaces.
func (s *tenants) KnownKeys(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask,
) ([]bool, error) {
	var types, keys []string
	for _, task := range tasks {
		if task.Options.Key != "" {
			types = append(types, task.Type)
			keys = append(keys, task.Options.Key)
		}
	}
	out := make([]bool, len(tasks))
	if len(keys) == 0 {
		return out, nil
	}
	rows, _ := s.core.DB(tenant).Query(ctx, `
		SELECT k.type, k.key, k.expires_at < `+config.KeyUntilFinalSQL+`
		FROM `+postgres.Quote(schema.Of(tenant))+`.idempotency_keys k
		JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS u (type, key)) u
		ON k.type = u.type AND k.key = u.key
		WHERE k.expires_at > $3`, types, keys, s.core.Clock.Now())
	stays := map[[2]string]bool{} // of the keys that stand for a task
	var name [2]string
	var windowed bool
	_, err := pgx.ForEachRow(rows, []any{&name[0], &name[1], &windowed}, func() error {
		stays[name] = windowed
		return nil
	})
	for i, task := range tasks {
		stay, known := stays[[2]string{task.Type, task.Options.Key}]
		out[i] = stay || known && task.OnConflict == asyncflow.ConflictReplace
	}
	return out, postgres.Wrap(err, "KnownKeys(%q)", tenant)
}
