package counts

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// stageLoadSQL counts the tasks of a type in the stages with the names $2: leased tasks, and tasks
// that are due by $3 and wait for a worker, or for a limit that more workers raise. It leaves out
// tasks that wait for their flow key or for other tasks: more workers don't help them. Like Stats,
// it counts token rows one by one, in `wait` only due ones.
const stageLoadSQL = `
SELECT (SELECT count(*) FROM {lease} WHERE type = $1 AND stage = ANY ($2::text[])),
  (SELECT count(*) FROM {readies} r
    WHERE r.type = $1 AND r.order_time <= $3 AND r.stage = ANY ($2::text[]))
  + (SELECT count(*) FROM {wait} WHERE type = $1 AND until = 'infinity' AND order_time <= $3
    AND stage = ANY ($2::text[]) AND reason <> 'flow_key')
  + (SELECT count(*) FROM {wait} WHERE type = $1 AND until <= $3 AND stage = ANY ($2::text[]))`

// StageLoad returns what a stage of a type asks of its workers now, and in asyncflow.FailureWindow.
// A paused type has no backlog. CodeNotFound when there is no such type, CodeInvalid without such a
// stage.
func (s *Counts) StageLoad(
	ctx context.Context, tenant, taskType, stage string,
) (load asyncflow.StageLoad, t *config.Type, err error) {
	ctx = postgres.Patient(ctx)
	if t, err = s.core.Catalog.Fresh(ctx, tenant, taskType); err != nil {
		return load, nil, err
	}
	if t.StageIndex(stage) < 0 {
		return load, nil, asyncflow.InvalidField("stage", "the task type %q has no stage %q",
			taskType, stage)
	}
	now := s.core.Clock.Now()
	err = s.core.DB(tenant).QueryRow(ctx, t.SQL(0, stageLoadSQL), pgx.QueryExecModeExec, t.Number(),
		t.NamesOf(stage), now).Scan(&load.Running, &load.Backlog)
	if err != nil {
		return load, t, postgres.Wrap(err, "StageLoad(%q, %q, %q)", tenant, taskType, stage)
	}
	if t.Paused() {
		load.Backlog = 0
	}
	err = s.addPace(ctx, t, stage, now, &load)
	return load, t, postgres.Wrap(err, "StageLoad(%q, %q, %q)", tenant, taskType, stage)
}

// addPace adds how many tasks of a stage were started lately, and how long attempts took.
func (s *Counts) addPace(
	ctx context.Context, t *config.Type, stage string, now time.Time, load *asyncflow.StageLoad,
) error {
	since := now.Add(-asyncflow.FailureWindow).Truncate(time.Minute)
	var started, attempts int64
	var busy float64
	err := s.core.DB(t.Tenant).QueryRow(ctx, `
		SELECT coalesce(sum((SELECT sum(n) FROM unnest(latencies) n)), 0)::bigint,
		  coalesce(sum(attempts), 0)::bigint, coalesce(sum(busy), 0)
		FROM `+postgres.Quote(schema.Of(t.Tenant))+`.type_minutes
		WHERE type = $1 AND stage = $2 AND at >= $3`, t.Name, stage, since,
	).Scan(&started, &attempts, &busy)
	if err != nil {
		return err
	}
	load.Started = float64(started) / now.Sub(since).Seconds()
	if attempts > 0 {
		load.Service = time.Duration(busy / float64(attempts) * float64(time.Second))
	}
	return nil
}
