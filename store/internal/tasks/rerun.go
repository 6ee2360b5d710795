package tasks

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// rerunSQL reads what the reruns of tasks of one roll need. Of tasks before which the contexts have
// $3 bytes it reads none. A context is the last one that a caller gave the task for its first
// stage, or the one with the results of its dependencies; otherwise its own.
const rerunSQL = `
SELECT id, final, options, CASE WHEN upto - size < $3 THEN context END
FROM (SELECT *, sum(size) OVER (ORDER BY id) AS upto
  FROM (SELECT *, octet_length(context) AS size
    FROM (SELECT t.id, coalesce((SELECT j.final FROM {journal} j
          WHERE j.type = t.type AND j.id = t.id ORDER BY j.seq DESC LIMIT 1), '') AS final,
        coalesce({options}, '{}') AS options,
        coalesce((SELECT j.output FROM {journal} j
          WHERE j.type = t.type AND j.id = t.id AND j.output IS NOT NULL AND j.stage = ANY ($4)
            AND j.outcome IN ('changed', 'redriven', 'dependencies')
          ORDER BY j.seq DESC LIMIT 1), t.context) AS context
      FROM {task} t WHERE t.type = $2 AND t.id = ANY ($1)) t) s) u
ORDER BY id`

// rerun is a final task that is to run again as a new one.
type rerun struct {
	id      asyncflow.TaskID
	status  asyncflow.Status // "": it is not final
	options asyncflow.Options
	context json.RawMessage // nil: the tasks before it have enough bytes
}

// task returns the new task, or why there is none.
func (r rerun) task() (asyncflow.NewTask, error) {
	return asyncflow.Rerun(r.id, r.context, r.options),
		asyncflow.CheckRerun(r.id, r.status, r.options)
}

// readReruns reads tasks of one roll, by their ids. The contexts have about so many bytes.
func readReruns(
	ctx context.Context, db postgres.Querier, t *config.Type, ids []int64, bytes int,
) ([]rerun, error) {
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	rows, _ := db.Query(ctx, t.SQL(position, rerunSQL), ids, t.Number(), bytes,
		t.NamesOf(t.Stages[0].Name))
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r rerun, err error) {
		var document []byte
		r.id.Type = t.Name
		err = row.Scan(&r.id.Number, &r.status, &r.options, &document)
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
