package tasks

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// watchPoll is how often a caller that follows a task looks for changes by other nodes, see
// Follow.
const watchPoll = 500 * time.Millisecond

// Follow returns a channel that gets an entry after each change that this node makes to a
// task, and a function that ends it. The caller finds the changes of other nodes and of
// background jobs by reading the task, about every WatchPause.
func (s *Tasks) Follow(tenant string, id asyncflow.TaskID) (<-chan struct{}, func()) {
	return s.core.Watchers.Follow(config.TypeKey{Tenant: tenant, Type: id.Type}, id.Number)
}

// WatchPause returns how long a caller that follows a task pauses between two reads:
// watchPoll, and longer when there are many callers, so that all of them on this node together
// read at most 200 times a second.
func (s *Tasks) WatchPause() time.Duration {
	return max(watchPoll, time.Duration(s.core.Watchers.Following.Load())*5*time.Millisecond)
}

// watchSQL reads a task without its context, unless that is the result.
var watchSQL = oneTaskSQL(strings.NewReplacer(
	"t.context", "NULL::text",
	resultSQL, "coalesce("+resultSQL+", CASE WHEN j.final = 'succeeded' THEN t.context END)").
	Replace(stateColumns))

// Watch returns a task without its context, a page of its journal up to the task's state, and
// whether there are more rows; CodeNotFound when there is no such task. It takes one round
// trip, and more for a task with children or dependencies.
func (s *Tasks) Watch(
	ctx context.Context, tenant string, id asyncflow.TaskID, p AttemptPage,
) (task Task, attempts []Attempt, more bool, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return task, nil, false, err
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		b := &pgx.Batch{}
		one := s.oneTask(t, id)
		state := b.Queue(t.SQL(id.Position(), watchSQL), one.args()...)
		state.Query(func(rows pgx.Rows) (err error) {
			task, err = one.collect(rows, s.core.Clock.Now())
			return err
		})
		journal := b.Queue(t.SQL(id.Position(), attemptsSQL), p.args(t, id)...)
		journal.Query(func(rows pgx.Rows) (err error) {
			attempts, more, err = p.collect(rows)
			return err
		})
		return s.core.DB(t.Tenant).Send(ctx, b)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return task, nil, false, config.UnknownTask(id)
	}
	if err != nil {
		return task, nil, false, postgres.Wrap(err, "Watch(%q, %s)", tenant, id)
	}
	err = s.tellRelations(ctx, tenant, &task)
	// Leave out rows that were written between the two statements.
	for len(attempts) > 0 && attempts[len(attempts)-1].Seq > task.seq {
		attempts = attempts[:len(attempts)-1]
	}
	return task, attempts, more, postgres.Wrap(err, "Watch(%q, %s)", tenant, id)
}
