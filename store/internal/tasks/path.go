package tasks

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
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

// pathSQL reads a task's journal up to a seq ($3): the task may have gone on since it was read. It
// leaves out rows up to the one with a seq ($4) and a time ($5), unless the database has gone back
// and has another row there.
const pathSQL = `
SELECT seq, at, stage, attempt, outcome, final IS NOT NULL, ` + hot.WaitsThen + ` FROM {journal} j
WHERE type = $1 AND id = $2 AND seq <= $3 AND seq > coalesce((SELECT k.seq FROM {journal} k
  WHERE k.type = $1 AND k.id = $2 AND k.seq = $4 AND k.at = $5), 0)
ORDER BY seq`

// tellPath reads the path of a task into it, if its type branches.
func (s *Tasks) tellPath(ctx context.Context, tenant string, task *Task) error {
	t, err := s.core.TypeOf(ctx, tenant, task.ID)
	if err != nil || !t.Branches() || task.Options.Child != nil {
		return err
	}
	p, err := s.readPath(ctx, t, task)
	if err != nil {
		return err
	}
	if !task.Status.Final() {
		p.add(pathRow{stage: task.Stage})
	}
	if task.Status == asyncflow.StatusRunning {
		p.visits[len(p.visits)-1].Attempts = task.Attempt
	}
	task.Path = slices.Clone(p.visits[max(0, len(p.visits)-pathVisits):])
	task.Steps = p.steps
	return nil
}

// readPath returns the path of a task by its journal. It reads only the rows after the ones that
// the node remembers.
func (s *Tasks) readPath(ctx context.Context, t *config.Type, task *Task) (path, error) {
	p := s.paths.get(t, task)
	known := p.until
	var row pathRow
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(task.ID.Position(), pathSQL), t.Number(),
		task.ID.Number, task.seq, known, p.at)
	_, err := pgx.ForEachRow(rows, []any{&row.seq, &row.at, &row.stage, &row.attempt, &row.outcome,
		&row.final, &row.waits},
		func() error {
			if row.seq <= known { // the database is back at an earlier time
				p = newPath()
				known = 0
			}
			p.add(row)
			return nil
		})
	if err != nil {
		return p, err
	}
	s.paths.note(t, task.ID.Number, p)
	return p, nil
}

// path is the way of a task through its stages.
type path struct {
	visits  []Visit // the last ones
	steps   int
	ofStage map[string]int // visits of each stage
	passed  bool           // the stage of the last visit was passed
	until   int            // the seq of the last row
	at      time.Time      // its time
}

func newPath() path { return path{ofStage: map[string]int{}} }

// clone returns a path to which rows can be added.
func (p path) clone() path {
	p.visits = slices.Clone(p.visits)
	p.ofStage = maps.Clone(p.ofStage)
	return p
}

// pathRow is a row of a journal, or a token row without an outcome.
type pathRow struct {
	seq     int
	at      time.Time
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
	if r.seq > 0 {
		p.until = r.seq
		p.at = r.at
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
