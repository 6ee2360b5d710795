package tasks

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// RerunSQL reads what the reruns of tasks of one roll need. After $3 bytes of contexts it returns
// tasks without theirs. A context is the last one that a caller gave the task for its first stage,
// or the one with the results of its dependencies; otherwise its own.
const RerunSQL = `
SELECT id, final, outcome, given, options, CASE WHEN upto - size < $3 THEN context END
FROM (SELECT *, sum(size) OVER (ORDER BY id) AS upto
  FROM (SELECT *, octet_length(context) AS size
    FROM (SELECT t.id, coalesce(e.final, '') AS final, coalesce(e.outcome, '') AS outcome,
        coalesce({options}, '{}') AS options, g.output IS NOT NULL AS given,
        coalesce(g.output, t.context) AS context
      FROM unnest($1::bigint[]) AS i (id), LATERAL (
        SELECT * FROM {task} WHERE type = $2 AND id BETWEEN i.id AND i.id ORDER BY id LIMIT 1) t
      LEFT JOIN LATERAL (SELECT j.final, j.outcome FROM {journal} j
        WHERE j.type = t.type AND j.id = t.id ORDER BY j.seq DESC LIMIT 1) e ON true
      LEFT JOIN LATERAL (SELECT j.output FROM {journal} j
        WHERE j.type = t.type AND j.id = t.id AND j.output IS NOT NULL AND j.stage = ANY ($4)
          AND j.outcome IN ('changed', 'redriven', 'dependencies')
        ORDER BY j.seq DESC LIMIT 1) g ON true) t) s) u
ORDER BY id`

// rerun is a final task that is to run again as a new one.
type rerun struct {
	id      asyncflow.TaskID
	status  asyncflow.Status      // "": it is not final
	ended   asyncflow.OutcomeKind // its last outcome
	given   bool                  // the context is not the one that it was submitted with
	options asyncflow.Options
	context json.RawMessage // nil: there are enough bytes in the tasks before it
}

// task returns the new task, or why there is none. A new task is without dependencies, so it would
// run without what the old one waited for.
func (r rerun) task() (task asyncflow.NewTask, err error) {
	err = asyncflow.CheckRerun(r.id, r.status, r.options)
	switch {
	case err != nil:
	case r.ended == asyncflow.OutcomeDependencies:
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s ended because of its dependencies: redrive them with their dependents", r.id)
	case r.options.ContextFrom != "" && !r.given:
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s ended before its dependencies gave it their results: redrive it", r.id)
	}
	return asyncflow.Rerun(r.id, r.context, r.options), err
}

// readReruns reads tasks of one roll, by their ids. The contexts take about so many bytes.
func readReruns(
	ctx context.Context, db postgres.Querier, t *config.Type, ids []int64, bytes int,
) ([]rerun, error) {
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	rows, _ := db.Query(ctx, t.SQL(position, RerunSQL), ids, t.Number(), bytes,
		t.NamesOf(t.Stages[0].Name))
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r rerun, err error) {
		var document []byte
		r.id.Type = t.Name
		err = row.Scan(&r.id.Number, &r.status, &r.ended, &r.given, &r.options, &document)
		r.context = document
		return r, err
	})
}

// Rerun returns the task that runs a final task again, for a submit. A task that is not final, or
// that can't be run again by itself, is CodeConflict.
func (s *Tasks) Rerun(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (task asyncflow.NewTask, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return task, err
	}
	var all []rerun
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) (err error) {
		all, err = readReruns(ctx, s.core.DB(tenant), t, []int64{id.Number}, 1)
		return err
	})
	switch {
	case err != nil:
		return task, postgres.Wrap(err, "Rerun(%q, %s)", tenant, id)
	case len(all) == 0:
		return task, config.UnknownTask(id)
	}
	return all[0].task()
}

// RerunByKey returns the task that an earlier call made of a task, by its idempotency key;
// CodeNotFound when there is none.
func (s *Tasks) RerunByKey(
	ctx context.Context, tenant string, id asyncflow.TaskID, key string,
) (task Task, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return task, err
	}
	number, err := holderOf(ctx, s.core.DB(tenant), t, key)
	if err == nil && number > 0 {
		task, err = s.Task(ctx, tenant, asyncflow.TaskID{Type: t.Name, Number: number})
	}
	if err == nil && (number == 0 || task.Options.RerunOf != id.String()) {
		err = config.UnknownTask(id)
	}
	return task, postgres.Wrap(err, "RerunByKey(%q, %s)", tenant, id)
}
