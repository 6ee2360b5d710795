package tasks

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// Visit is one pass of a task through a stage.
type Visit struct {
	Stage    string `json:"stage"`
	Visit    int    `json:"visit"` // of that stage, from 1
	Attempts int    `json:"attempts"`
}

// pathVisits is how many visits are shown at most, the last ones.
const pathVisits = 100

// pathSQL reads a task's journal up to a seq: the task may have gone on since it was read.
const pathSQL = `
SELECT stage, attempt, outcome, final IS NOT NULL, ` + hot.WaitsThen + ` FROM {journal} j
WHERE type = $1 AND id = $2 AND seq <= $3 ORDER BY seq`

// tellPath reads the path of a task into it, if its type branches.
func (s *Tasks) tellPath(ctx context.Context, tenant string, task *Task) error {
	t, err := s.core.TypeOf(ctx, tenant, task.ID)
	if err != nil || !t.Branches() || task.Options.Child != nil {
		return err
	}
	p := path{ofStage: map[string]int{}}
	var row pathRow
	rows, _ := s.core.DB(tenant).Query(ctx, t.SQL(task.ID.Position(), pathSQL), t.Number(),
		task.ID.Number, task.seq)
	_, err = pgx.ForEachRow(rows, []any{&row.stage, &row.attempt, &row.outcome, &row.final,
		&row.waits},
		func() error {
			p.add(row)
			return nil
		})
	if !task.Status.Final() {
		p.add(pathRow{stage: task.Stage})
	}
	if task.Status == asyncflow.StatusRunning {
		p.visits[len(p.visits)-1].Attempts = task.Attempt
	}
	task.Path = slices.Clone(p.visits[max(0, len(p.visits)-pathVisits):])
	task.Steps = p.steps
	return err
}

// path is the way of a task through its stages.
type path struct {
	visits  []Visit // the last ones
	steps   int
	ofStage map[string]int // visits of each stage
	passed  bool           // the stage of the last visit was passed
}

// pathRow is a row of a journal, or a token row without an outcome.
type pathRow struct {
	stage   string
	attempt int
	outcome asyncflow.OutcomeKind
	final   bool
	waits   bool // the task waits in the stage then, for tasks that it started
}

// add adds a row. A visit begins after a stage was passed, or by a redrive.
func (p *path) add(r pathRow) {
	n := len(p.visits)
	redriven := r.outcome == asyncflow.OutcomeRedriven
	if n == 0 || p.passed || redriven || p.visits[n-1].Stage != r.stage {
		if n == 2*pathVisits {
			n = copy(p.visits, p.visits[pathVisits:])
		}
		p.steps++
		p.ofStage[r.stage]++
		p.visits = append(p.visits[:n], Visit{Stage: r.stage, Visit: p.ofStage[r.stage]})
	}
	last := &p.visits[len(p.visits)-1]
	if r.counts() {
		last.Attempts = max(last.Attempts, r.attempt)
	}
	p.passed = r.outcome == asyncflow.OutcomeDone && !r.waits ||
		r.outcome == asyncflow.OutcomeJoined || r.outcome == asyncflow.OutcomeSignalled
}

// counts reports whether an attempt was counted for a row.
func (r pathRow) counts() bool {
	switch r.outcome {
	case asyncflow.OutcomeDone, asyncflow.OutcomeFailed, asyncflow.OutcomeRejected,
		asyncflow.OutcomeLost:
		return true
	case asyncflow.OutcomeSnoozed: // it came after max_snooze
		return r.final
	}
	return false
}
