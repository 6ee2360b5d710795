package counts

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// dueSinceSQL finds a task of type $1 that has been due since $2 and is not in flight; $3 is now.
// It compares the same times as countSQL, by the same indexes. %s are the ready tables.
const dueSinceSQL = `
SELECT id FROM (
  (SELECT id FROM (%s) r
   WHERE type = $1 AND order_time <= $3 AND coalesce(since, order_time) = $2 LIMIT 1)
  UNION ALL
  (SELECT id FROM {wait} WHERE type = $1 AND until IN ('infinity', $4) AND order_time <= $3
     AND coalesce(since, order_time) = $2 LIMIT 1)
  UNION ALL
  (SELECT id FROM {wait} WHERE type = $1 AND until <= $3 AND order_time = $2 LIMIT 1)) due
LIMIT 1`

// DueSince returns a task of a type that became due at a time and is not in flight: Backlog.Oldest
// gives the time. It returns no id if the task has begun meanwhile.
func (s *Counts) DueSince(
	ctx context.Context, tenant, name string, due time.Time,
) (id asyncflow.TaskID, err error) {
	t, err := s.core.Catalog.Type(tenant, name)
	if err != nil {
		return id, err
	}
	ctx = postgres.Patient(ctx)
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		ready := strings.Join(config.ReadySelects(t), " UNION ALL ")
		sql := t.SQL(0, strings.Replace(dueSinceSQL, "%s", ready, 1))
		return s.core.DB(tenant).QueryRow(ctx, sql, pgx.QueryExecModeExec, t.Number(), due,
			s.core.Clock.Now(), records.UntilOthers.Time).Scan(&id.Number)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return asyncflow.TaskID{}, nil
	}
	id.Type = name
	return id, postgres.Wrap(err, "DueSince(%q, %q)", tenant, name)
}

// AlertTask returns the key and the labels of a task, for an alert. It takes one read.
func (s *Counts) AlertTask(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (task asyncflow.AlertTask, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return task, err
	}
	var doc []byte
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		if !t.Has(id.Position()) {
			return config.UnknownTask(id)
		}
		return s.core.DB(tenant).QueryRow(ctx, t.SQL(id.Position(),
			`SELECT coalesce({options}, '{}') FROM {task} t WHERE t.type = $1 AND t.id = $2`),
			t.Number(), id.Number).Scan(&doc)
	})
	if err != nil {
		return task, postgres.Wrap(err, "AlertTask(%q, %s)", tenant, id)
	}
	var o asyncflow.Options
	err = json.Unmarshal(doc, &o)
	return asyncflow.AlertTask{ID: id.String(), Key: o.Key, Labels: o.Labels},
		postgres.Wrap(err, "AlertTask(%q, %s)", tenant, id)
}
