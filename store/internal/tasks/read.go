package tasks

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
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Task is a task as it stands.
type Task struct {
	ID         asyncflow.TaskID
	Status     asyncflow.Status
	Stage      string // in which it is, or ended
	Attempt    int    // of that stage: under way, next, or last
	Options    asyncflow.Options
	WaitsFor   asyncflow.WaitReason // while waiting or pending
	Turn       string               // of a due task of a fair type: when its flow key gets its turn
	OrderTime  time.Time            // while waiting or pending
	Deadline   time.Time            // while running: when its lease runs out
	CreatedAt  time.Time
	FinishedAt time.Time // once final
	Progress   *Progress // while running, if the worker reported it
	Run        *Run      // while running
	Error      string    // of its last attempt, unless that succeeded
	Code       string    // of Error, see asyncflow.ErrorCode
	Context    json.RawMessage
	Result     json.RawMessage // once succeeded: the last stage's output, else its input

	// Children counts the children of the latest fan-out; nil: there was none.
	Children *asyncflow.Children
	// ChildTypes are the types of children that an attempt started; nil: they are of its own.
	ChildTypes []string
	// Tree counts the tasks of all levels below it; nil: there is at most one level.
	Tree  *asyncflow.TreeCounts
	Pause TreePause // of the children; zero: they aren't paused
	// Signal is what it waits for with WaitSignal.
	Signal SignalWait
	// Spawned counts the tasks that it started, by their types.
	Spawned []SpawnedCount
	// Dependencies are the tasks that it depends on, in the order of the submit.
	Dependencies []trees.DependencyState
	// Path lists the last visits of stages, oldest first, and Steps is the number of all visits, if
	// the type branches.
	Path  []Visit
	Steps int
	// OnFinal says where its end is told, by itself or its type; nil: nowhere.
	OnFinal *asyncflow.OnFinal
	// Notifications are the tasks that tell its ends, the latest first.
	Notifications []asyncflow.TaskID
	// Redriven are the dependents that were redriven with it, or would be.
	Redriven []asyncflow.TaskID

	seq int       // of the last row of its journal when it was read; 0: there was none
	at  time.Time // of that row, or of its submit; zero unless it was read alone
}

// statusSQL reads a task's status from the rows of stateJoins.
const statusSQL = `CASE WHEN l.id IS NOT NULL THEN 'running' WHEN w.id IS NOT NULL THEN 'waiting'
	ELSE coalesce(j.final, 'pending') END`

// resultSQL reads the result of a task that succeeded, for stateColumns: the output of its last
// stage, else the input of that stage. NULL stands for the task's own context.
const resultSQL = `CASE WHEN j.final = 'succeeded' THEN coalesce(j.output,
    (SELECT o.output FROM {journal} o WHERE o.type = t.type AND o.id = t.id AND o.output IS NOT NULL
     ORDER BY o.seq DESC LIMIT 1)) END`

// stateColumns read a task's state from the place of its token row: {lease}, {wait},
// nowhere (the last row of its journal is final), or else ready, at the order_time in the
// task's row or in its last journal row.
const stateColumns = `
SELECT t.id, t.created_at, {options}, t.context,
  ` + statusSQL + `,
  coalesce(l.stage, w.stage, r.stage, j.stage, ''),
    coalesce(l.attempt, w.attempt, r.attempt, j.attempt, 0),
  coalesce(w.reason, ''), coalesce(w.order_time, r.order_time), l.until, j.at,
    coalesce(j.error, ''),
    coalesce(j.outcome = 'snoozed' AND j.attempt = coalesce(w.attempt, r.attempt), false),
  ` + resultSQL + `,
  l.progress, coalesce(l.note, ''), coalesce(j.seq, 0), coalesce(j.outcome, ''),
    coalesce(j.status, 0),
  l.leased_at, l.beat_at, coalesce(l.node, ''), coalesce(l.worker, ''),
    coalesce(l.sent_to, l.endpoint)::text, coalesce(l.claimer, ''),
    CASE WHEN j.seq IS NOT NULL OR t.options->'depends_on' IS NULL
    THEN greatest(coalesce(j.next_time, t.order_time), coalesce(j.at, t.created_at)) END`

// bareColumns are stateColumns without the options, the context and the result.
var bareColumns = strings.NewReplacer("{options}", "NULL::json", "t.context", "''::text",
	resultSQL, "NULL::text").Replace(stateColumns)

// stateJoins read one row of each table by its index. The limit on ready keeps the
// condition on order_time from becoming a filter over the whole index, in plans that
// were made while ready was empty and are kept.
const stateJoins = `
LEFT JOIN {lease} l ON l.type = t.type AND l.id = t.id
LEFT JOIN {wait} w ON w.type = t.type AND w.id = t.id
LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.type = t.type AND j.id = t.id
  ORDER BY seq DESC LIMIT 1) j ON true
LEFT JOIN LATERAL (
  SELECT * FROM {readies} r
  WHERE r.type = t.type AND r.order_time = coalesce(j.next_time, t.order_time) AND r.id = t.id
    AND l.id IS NULL AND w.id IS NULL AND j.final IS NULL LIMIT 1) r ON true`

// Task returns a task; CodeNotFound when there is none. It takes one read by primary key,
// whatever the age of the task; a node reads the rows of a long journal once. If the task is due
// and its type or tenant is limited, one or a few more reads find which limit it waits for.
func (s *Tasks) Task(ctx context.Context, tenant string, id asyncflow.TaskID) (Task, error) {
	task, err := s.task(ctx, tenant, id)
	if err != nil {
		return task, postgres.Wrap(err, "Task(%q, %s)", tenant, id)
	}
	err = s.tellRelations(ctx, tenant, &task)
	return task, postgres.Wrap(err, "Task(%q, %s)", tenant, id)
}

// BareTask returns where a task is: its status, stage, attempt and place in the order, and what it
// depends on while it waits for that. It takes one read by primary key, or two, however long the
// journal is.
func (s *Tasks) BareTask(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (task Task, err error) {
	task, err = s.readBare(ctx, tenant, id)
	if err != nil || task.WaitsFor != asyncflow.WaitDependencies {
		return task, postgres.Wrap(err, "BareTask(%q, %s)", tenant, id)
	}
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return task, postgres.Wrap(err, "BareTask(%q, %s)", tenant, id)
	}
	task.Dependencies, err = trees.DependenciesOf(ctx, s.trees, t, id)
	return task, postgres.Wrap(err, "BareTask(%q, %s)", tenant, id)
}

// TaskStatus returns the status of a task; CodeNotFound when there is none. It takes one read,
// however long the task's path is and however many its children are.
func (s *Tasks) TaskStatus(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (asyncflow.Status, error) {
	task, err := s.readBare(ctx, tenant, id)
	return task.Status, postgres.Wrap(err, "TaskStatus(%q, %s)", tenant, id)
}

// task is Task without the limits that a due task waits for, its children and its dependencies.
func (s *Tasks) task(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (Task, error) {
	return s.readTask(ctx, tenant, id, func(t *config.Type) (Task, error) {
		return s.readOne(ctx, t, id, taskSQL)
	})
}

// readBare reads a task with bareColumns.
func (s *Tasks) readBare(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (Task, error) {
	return s.readTask(ctx, tenant, id, func(t *config.Type) (Task, error) {
		rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(id.Position(),
			bareColumns+` FROM {task} t`+stateJoins+` WHERE t.type = $2 AND t.id = $1`),
			id.Number, t.Number())
		return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Task, error) {
			return scanTask(row, t, s.core.Clock.Now())
		})
	})
}

// readTask reads a task from the tables that hold it.
func (s *Tasks) readTask(
	ctx context.Context, tenant string, id asyncflow.TaskID,
	read func(*config.Type) (Task, error),
) (task Task, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		if !t.Has(id.Position()) { // its roll was dropped a moment ago
			return config.UnknownTask(id)
		}
		task, err = read(t)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Task{}, config.UnknownTask(id)
	}
	return task, err
}

// scanTask reads a row of stateColumns, and more columns after these. now is the database's time.
func scanTask(
	row pgx.CollectableRow, t *config.Type, now time.Time, more ...any,
) (task Task, err error) {
	var order, until, ended *time.Time
	var options, doc, result []byte
	var percent *int
	var note string
	var snoozed bool
	var outcome asyncflow.OutcomeKind
	var answer int
	var since, beat, due *time.Time
	var endpoint *string
	var run Run
	err = row.Scan(append([]any{&task.ID.Number, &task.CreatedAt, &options, &doc, &task.Status,
		&task.Stage, &task.Attempt, &task.WaitsFor, &order, &until, &ended, &task.Error, &snoozed,
		&result, &percent, &note, &task.seq, &outcome, &answer, &since, &beat, &run.Node,
		&run.Worker, &endpoint, &run.Claimer, &due}, more...)...)
	if err != nil {
		return task, err
	}
	task.ID.Type = t.Name
	task.Context = doc
	task.Code = asyncflow.ErrorCode(outcome, answer, task.Error)
	if options != nil {
		if err := json.Unmarshal(options, &task.Options); err != nil {
			return task, err
		}
	}
	if task.Options.Erased != nil {
		task.Context = nil
		doc = nil
		result = nil
	}
	switch task.Status {
	case asyncflow.StatusRunning:
		task.Deadline = postgres.OrZero(until)
		run.Since = postgres.OrZero(since)
		run.Heartbeat = postgres.OrZero(beat)
		run.complete(t, task.Stage, due, endpoint)
		task.Run = &run
		if percent != nil {
			task.Progress = &Progress{Percent: *percent, Note: note}
		}
	case asyncflow.StatusWaiting:
		task.OrderTime = postgres.OrZero(order)
		task.putInLine(t, snoozed, now)
	case asyncflow.StatusPending:
		if order == nil {
			return task, config.ErrElsewhere
		}
		task.OrderTime = *order
		task.putInLine(t, snoozed, now)
	default:
		task.FinishedAt = postgres.OrZero(ended)
		if task.Status == asyncflow.StatusSucceeded {
			task.Result = result
			if result == nil { // no stage had an output
				task.Result = doc
			}
		}
	}
	return task, nil
}

// putInLine gives a task that waits, or is pending, its place in the stages as they are now, and
// the reason why it isn't running.
func (task *Task) putInLine(t *config.Type, snoozed bool, now time.Time) {
	task.Stage, task.Attempt = t.Mapped(task.Stage, task.Attempt)
	switch {
	case task.Status == asyncflow.StatusPending:
		task.WaitsFor = pendingFor(t, *task, snoozed, now)
	case task.WaitsFor != asyncflow.WaitClaimer:
	case !t.Claims(task.Stage): // the mode is another one by now
		task.WaitsFor = pendingFor(t, *task, snoozed, now)
	case snoozed && task.OrderTime.After(now): // claimers are given only tasks that are due
		task.WaitsFor = asyncflow.WaitSnooze
	}
}

// readTime bounds the reads of AwaitFinal, beside its wait.
const readTime = 30 * time.Second

// AwaitFinal returns the task once it is final, or in its state after wait.
func (s *Tasks) AwaitFinal(
	ctx context.Context, tenant string, id asyncflow.TaskID, wait time.Duration,
) (Task, error) {
	changed, done := s.Follow(tenant, id)
	defer done()
	end := time.NewTimer(wait)
	defer end.Stop()
	// A read that is under way when ctx ends is still an answer.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+readTime)
	defer cancel()
	for {
		task, err := s.task(reading, tenant, id)
		if err == nil && task.Status.Final() {
			return task, postgres.Wrap(s.tellRelations(reading, tenant, &task),
				"AwaitFinal(%q, %s)", tenant, id)
		}
		if err != nil {
			return task, postgres.Wrap(err, "AwaitFinal(%q, %s)", tenant, id)
		}
		poll := time.NewTimer(s.WatchPause())
		select {
		case <-changed:
		case <-poll.C:
		case <-end.C:
			poll.Stop()
			return s.Task(reading, tenant, id)
		case <-ctx.Done():
			poll.Stop()
			return task, nil
		}
		poll.Stop()
	}
}
