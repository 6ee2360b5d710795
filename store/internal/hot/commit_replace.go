package hot

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Replace says how a submit replaces the context of the task with its key.
type Replace struct {
	RunAt    time.Time
	Delay    time.Duration
	MaxWait  time.Duration // since the task was submitted first; 0: no bound
	Priority asyncflow.Priority
	// What the submit itself says of the task's lifetime, and of who may claim it; nil: nothing.
	StartBy, EndBy asyncflow.Deadline
	Claim          *asyncflow.ClaimRules

	By           string // who submits
	Operates     bool   // also of a task that was not submitted to be replaced
	OnlyReplaces error  // why no other task can be made; nil: one can
}

// Due returns when a task is due that was submitted first at one time, and is replaced now.
func (r *Replace) Due(first, now time.Time) time.Time {
	due := now.Add(r.Delay)
	if r.RunAt.After(now) {
		due = r.RunAt
	}
	if last := first.Add(r.MaxWait); r.MaxWait > 0 && last.Before(due) {
		due = last
	}
	return due
}

// Complete adds what an earlier submit of the key says, and r doesn't. A deadline that is over when
// the task is due is left out, as it would be if the two came one after the other: the task that it
// belongs to would be let go.
func (r *Replace) Complete(earlier *Replace, due time.Time) {
	if len(r.Priority) == 0 {
		r.Priority = earlier.Priority
	}
	if r.StartBy.IsZero() && !earlier.StartBy.OverAt(due) {
		r.StartBy = earlier.StartBy
	}
	if r.EndBy.IsZero() && !earlier.EndBy.OverAt(due) {
		r.EndBy = earlier.EndBy
	}
	if r.Claim == nil {
		r.Claim = earlier.Claim
	}
}

// Patch returns the change of a task that was submitted first at one time, and is replaced now. Its
// durations count anew.
func (r *Replace) Patch(
	context json.RawMessage, life *asyncflow.Lifetime, first, now time.Time,
) asyncflow.Patch {
	start, end := life.Anew(r.StartBy, r.EndBy)
	return asyncflow.Patch{RunAt: r.Due(first, now), Priority: r.Priority, Context: context,
		StartBy: start, EndBy: end, Claim: r.Claim, By: r.By}
}

// Replaced is how a task stands after its context was replaced.
type Replaced struct {
	ID        asyncflow.TaskID
	Stage     string
	Status    asyncflow.Status
	OrderTime time.Time
	CreatedAt time.Time
}

// ReplaceFunc replaces the contexts of the tasks with the keys of some items. The key of an item
// differs from those of the others. It sets Key.Replaced of an item for a task that it replaced,
// and Key.Refused of one that may not be; the remaining items are to take their keys. The rows of
// the keys are locked.
type ReplaceFunc func(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, holders map[string]Holder,
) error

// replaceHolders makes items replace the contexts of the tasks with their keys, or gives them the
// keys. It changes the holders. Of several items with a key, the last one does.
func replaceHolders(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion,
	holders map[string]Holder, others map[string]bool, replace ReplaceFunc,
) error {
	last := map[string]*Insertion{}
	for _, item := range items {
		item.Key.Replaced = nil
		item.Key.Refused = nil
		h, known := holders[item.Key.Name]
		_, put := others[item.Key.Name]
		if item.Key.Replace != nil && known && !put && h.ID != item.ID.Number {
			last[item.Key.Name] = item
		}
	}
	if len(last) == 0 {
		return nil
	}
	replacing := make([]*Insertion, 0, len(last))
	for _, item := range items {
		if last[item.Key.Name] == item {
			replacing = append(replacing, item)
		}
	}
	if err := replace(ctx, tx, t, replacing, holders); err != nil {
		return err
	}
	var given []givenKey
	for _, item := range replacing {
		id := item.ID.Number
		switch r := item.Key.Replaced; {
		case item.Key.Refused != nil:
			continue
		case r != nil:
			id = r.ID.Number
		case item.Key.onlyReplaces() != nil:
			item.Key.Refused = item.Key.onlyReplaces()
			continue
		}
		given = append(given, givenKey{item.Key.Name,
			Holder{id, item.Key.Hash[:], item.Key.Expires}})
	}
	return giveKeys(ctx, tx, t, given, holders)
}
