package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// SignalWait is a signal that a task waits for, and until when.
type SignalWait struct {
	Name  string
	Until time.Time
	// Decisions are what people may decide by links; empty: there are none.
	Decisions []string
}

// tellRelations reads what a task waits for, and its children and dependencies, into task.
func (s *Tasks) tellRelations(ctx context.Context, tenant string, task *Task) error {
	if err := s.tellTurn(ctx, tenant, task); err != nil {
		return err
	}
	if err := s.tellLimitWaits(ctx, tenant, task); err != nil {
		return err
	}
	if err := s.tellSignal(ctx, tenant, task); err != nil {
		return err
	}
	if err := s.tellPath(ctx, tenant, task); err != nil {
		return err
	}
	if err := s.tellNotifications(ctx, tenant, task); err != nil {
		return err
	}
	return s.tellTree(ctx, tenant, task)
}

// tellSignal reads which signal a task waits for.
func (s *Tasks) tellSignal(ctx context.Context, tenant string, task *Task) error {
	if task.WaitsFor != asyncflow.WaitSignal {
		return nil
	}
	t, err := s.core.TypeOf(ctx, tenant, task.ID)
	if err != nil {
		return err
	}
	err = s.core.DB(tenant).QueryRow(ctx, t.SQL(0, `SELECT signal, until FROM {signal_waits}
		WHERE type = $1 AND id = $2`), t.Number(), task.ID.Number).Scan(&task.Signal.Name,
		&task.Signal.Until)
	if wait := t.WaitOf(task.Stage); wait != nil { // its name may be another one by now
		task.Signal.Name = wait.Signal
		if wait.Links != nil {
			task.Signal.Decisions = wait.Links.Names()
		}
	}
	if errors.Is(err, pgx.ErrNoRows) { // it just went on
		return nil
	}
	return err
}

// pendingFor returns why a task in ready is not running, as far as its type shows. snoozed reports
// whether its worker put it off last, without an attempt being counted.
func pendingFor(t *config.Type, task Task, snoozed bool, now time.Time) asyncflow.WaitReason {
	switch {
	case t.Paused():
		return asyncflow.WaitPaused
	case task.OrderTime.After(now) && snoozed:
		return asyncflow.WaitSnooze
	case task.OrderTime.After(now) && task.Attempt > 1:
		return asyncflow.WaitRetry
	case task.OrderTime.After(now):
		return asyncflow.WaitDelay
	case t.Claims(task.Stage):
		return asyncflow.WaitClaimer
	case !t.Serves(task.Stage):
		return asyncflow.WaitEndpoint
	}
	return asyncflow.WaitCapacity // or a limit: see counts.WhyDue
}

// tellTurn says when the flow key of a due task of a fair type gets its turn.
func (s *Tasks) tellTurn(ctx context.Context, tenant string, task *Task) error {
	if task.Status != asyncflow.StatusPending || task.WaitsFor != asyncflow.WaitCapacity {
		return nil
	}
	t, err := s.core.Catalog.Type(tenant, task.ID.Type)
	if err != nil || !t.Fair() {
		return err
	}
	db, now := s.core.DB(tenant), s.core.Clock.Now()
	raised, err := hot.RaisedBefore(ctx, db, t, task.ID.Number, now)
	var turns hot.KeysBefore
	if err == nil && !raised {
		turns, err = hot.TurnsBefore(ctx, db, t, t.LineKeyOf(task.Options), now)
	}
	switch {
	case hot.IsUndefinedTable(err): // a roll was dropped a moment ago
		return nil
	case err != nil:
		return err
	case raised:
		task.Turn = "Its head start puts it before the turns of the flow keys."
	default:
		task.Turn = turnText(turns)
	}
	return nil
}

// turnText says which key is next in turn before that of a task; "": it isn't known.
func turnText(turns hot.KeysBefore) string {
	now := fmt.Sprintf("It is the turn of the flow key %q", turns.First)
	if turns.First == "" {
		now = "It is the turn of the tasks without a flow key"
	}
	switch n := turns.Keys; {
	case n == 0 && turns.More: // keys without a due task come before it
		return ""
	case n == 0:
		return "It is the turn of its flow key."
	case turns.More:
		return fmt.Sprintf("%s; at least %d keys have theirs before its own.", now, n)
	case n == 1:
		return now + "; then it is that of its own."
	default:
		return fmt.Sprintf("%s; %d keys have theirs before its own.", now, n)
	}
}

// tellLimitWaits fills in which limits the due tasks of one type wait for.
func (s *base) tellLimitWaits(ctx context.Context, tenant string, tasks ...*Task) error {
	var reason asyncflow.WaitReason
	for _, task := range tasks {
		if task.WaitsFor != asyncflow.WaitCapacity {
			continue
		}
		if reason == "" {
			t, err := s.core.Catalog.Type(tenant, task.ID.Type)
			if err != nil {
				return err
			}
			if reason, err = counts.WhyDue(ctx, s.counts, t); err != nil {
				return err
			}
		}
		task.WaitsFor = reason
	}
	return nil
}
