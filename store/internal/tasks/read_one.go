package tasks

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// taskSQL reads a task with stateColumns.
var taskSQL = oneTaskSQL(stateColumns)

// latestResultSQL is resultSQL for oneTaskSQL.
const latestResultSQL = `CASE WHEN j.final = 'succeeded' THEN coalesce(j.output, o.output) END`

// oneTaskSQL reads task $1 of type $2 with columns made of stateColumns. $3 to $8 are what the node
// knows of its journal: the latest rows with options and with an output are found without a read of
// the whole. It also returns the time of the last row, and these rows; NULL instead of the row with
// an output if the result isn't to be found there.
func oneTaskSQL(columns string) string {
	return strings.NewReplacer("{options}", "coalesce(p.options, t.options)", resultSQL,
		latestResultSQL).Replace(columns) + `,
  coalesce(j.at, t.created_at), coalesce(p.seq, 0), CASE WHEN n.wanted THEN coalesce(o.seq, 0) END
FROM unnest($1::bigint[], $3::smallint[], $4::timestamptz[], $5::smallint[],
  $6::smallint[], $7::timestamptz[], $8::smallint[])
  AS u (id, p_until, p_at, p_row, o_until, o_at, o_row), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t` + stateJoins + `, LATERAL (
  SELECT coalesce(j.final = 'succeeded' AND j.output IS NULL, false) AS wanted LIMIT 1) n, ` +
		hot.LatestSQL("options", "j.options IS NOT NULL", "p") + ` p ON true, ` +
		hot.LatestSQL("output", "j.output IS NOT NULL AND n.wanted", "o") + ` o ON true`
}

// oneTask is a task that a statement of oneTaskSQL reads.
type oneTask struct {
	t      *config.Type
	id     int64
	latest hot.Latest
}

func (s *Tasks) oneTask(t *config.Type, id asyncflow.TaskID) oneTask {
	return oneTask{t, id.Number, hot.LatestOf(s.hot, t, id.Number)}
}

// args returns the arguments of the statement.
func (o oneTask) args() []any {
	return slices.Concat([]any{[]int64{o.id}, o.t.Number()}, o.latest.Args())
}

// collect reads the only row of the statement. now is the database's time.
func (o oneTask) collect(rows pgx.Rows, now time.Time) (Task, error) {
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Task, error) {
		var at time.Time
		var options int16
		var output *int16
		task, err := scanTask(row, o.t, now, &at, &options, &output)
		if err != nil {
			return task, err
		}
		task.at = at
		o.latest.Note(task.seq, at, options, output)
		return task, nil
	})
}

// ETag changes with each change of what Change can change, and whenever the task goes on to another
// attempt or stage. The task must be read alone for it.
func (t Task) ETag() string { return etagOf(t.ID, t.at, t.seq) }

// etagOf returns the ETag of a task with the time and the number of its last journal row.
func etagOf(id asyncflow.TaskID, at time.Time, seq int) string {
	return config.ETagOf(id.String(), at.UnixMicro(), seq)
}

// readOne reads a task with a statement of oneTaskSQL.
func (s *Tasks) readOne(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, sql string,
) (Task, error) {
	one := s.oneTask(t, id)
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(id.Position(), sql), one.args()...)
	return one.collect(rows, s.core.Clock.Now())
}

// SpawnedCount is how many tasks of a type a task started.
type SpawnedCount struct {
	Type  string
	Count int
}

// tellSpawned counts the tasks that a task started, if its type may start any, whether it waits for
// them or not.
func (s *Tasks) tellSpawned(ctx context.Context, t *config.Type, task *Task) error {
	if !t.Spawns() {
		return nil
	}
	counts, err := trees.JoinedBy(ctx, s.trees, t, task.ID.Number)
	if err != nil {
		return err
	}
	var numbers, n []int32
	for number, count := range counts {
		numbers = append(numbers, number)
		n = append(n, int32(count))
	}
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, `
		SELECT y.name, sum(c.n)::bigint FROM (
		  SELECT u.number, count(*) AS n FROM {spawns} s, unnest(s.types) AS u (number)
		  WHERE s.type = $1 AND s.id = $2 GROUP BY u.number
		  UNION ALL SELECT number, n FROM unnest($3::int[], $4::int[]) AS u (number, n)) c
		JOIN {types} y ON y.number = c.number GROUP BY y.name`),
		t.Number(), task.ID.Number, numbers, n)
	task.Spawned, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SpawnedCount])
	slices.SortFunc(task.Spawned, func(a, b SpawnedCount) int {
		return cmp.Compare(a.Type, b.Type)
	})
	return err
}
