package tasks

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Visit is one pass of a task through a stage.
type Visit struct {
	Stage    string `json:"stage"`
	Visit    int    `json:"visit"` // of that stage, from 1
	Attempts int    `json:"attempts"`
}

// pathSQL reads the last visits of a task and the number of all, newest first. A visit begins after
// a stage was passed, or by a redrive. The row that $3, $4 and $5 make stands for the token row of a
// live task: its stage, and its attempt if that is under way.
const pathSQL = `
WITH rows AS (
  SELECT seq, stage, attempt, outcome FROM {journal} WHERE type = $1 AND id = $2
  UNION ALL SELECT 40000, $3::text, $4::int, 'lost' WHERE $5::bool),
begun AS (
  SELECT *, lag(stage) OVER w IS DISTINCT FROM stage OR outcome = 'redriven'
    OR lag(outcome) OVER w IN ('done', 'joined') AS begins
  FROM rows WINDOW w AS (ORDER BY seq)),
numbered AS (
  SELECT *, count(*) FILTER (WHERE begins) OVER (ORDER BY seq) AS n FROM begun),
visits AS (
  SELECT n, min(stage) AS stage, coalesce(max(attempt) FILTER (
    WHERE outcome IN ('done', 'failed', 'rejected', 'lost')), 0) AS attempts
  FROM numbered GROUP BY n)
SELECT stage, row_number() OVER (PARTITION BY stage ORDER BY n)::int, attempts::int,
  count(*) OVER ()::int
FROM visits ORDER BY n DESC LIMIT 100`

// tellPath reads the path of a task into it, if its type branches.
func (s *Tasks) tellPath(ctx context.Context, tenant string, task *Task) error {
	t, err := s.core.TypeOf(ctx, tenant, task.ID)
	if err != nil || !t.Branches() || task.Options.Child != nil {
		return err
	}
	underWay := 0
	if task.Status == asyncflow.StatusRunning {
		underWay = task.Attempt
	}
	rows, _ := s.core.DB(tenant).Query(ctx, t.SQL(task.ID.Position(), pathSQL), t.Number(),
		task.ID.Number, task.Stage, underWay, !task.Status.Final())
	task.Path, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (v Visit, err error) {
		return v, row.Scan(&v.Stage, &v.Visit, &v.Attempts, &task.Steps)
	})
	slices.Reverse(task.Path)
	return err
}
