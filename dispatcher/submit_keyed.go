package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// commitKeyed writes one batch of tasks with idempotency keys.
func (c *Committer) commitKeyed(ctx context.Context, key store.TypeKey, items []*submission) {
	items = c.heldKeys.join(key, items)
	c.heldKeys.put(key, c.insertKeyed(ctx, key, items, store.KeysTogether))
}

// insertKeyed inserts tasks with keys, and answers their callers. It returns the tasks whose keys
// are locked by other transactions.
func (c *Committer) insertKeyed(ctx context.Context, key store.TypeKey, items []*submission,
	wait store.KeyWait) (
	held []*submission) {
	now := time.Now()
	items = slices.DeleteFunc(slices.Clone(items), func(s *submission) bool {
		late := now.After(s.until)
		if late {
			s.end(unanswered("the database doesn't answer; try again"))
		}
		return late
	})
	if len(items) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, lastUntil(items))
	defer cancel()
	slices.SortFunc(items, func(a, b *submission) int {
		return cmp.Or(cmp.Compare(a.ID.Position(), b.ID.Position()), cmp.Compare(a.Key.Name, b.Key.Name),
			cmp.Compare(a.ID.Number, b.ID.Number))
	})
	for roll := range byRoll(items) {
		held = append(held, c.insertKeyedRoll(ctx, key, roll, wait)...)
	}
	return held
}

// insertKeyedRoll inserts tasks of one roll. If Postgres refuses their data, it halves them until
// only the refused one fails.
func (c *Committer) insertKeyedRoll(ctx context.Context, key store.TypeKey, items []*submission,
	wait store.KeyWait) (
	held []*submission) {
	left, heldNow := insertions(items), []*store.Insertion(nil)
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err == nil {
		// Apart, no key is waited for: it is a table that is locked.
		apart := wait == store.KeysApart
		final := func(err error) bool { return isFinal(err) || !apart && store.IsHeld(err) }
		insert := func() (err error) {
			if heldNow, err = c.store.InsertKeyed(ctx, t, left, wait); store.RolledOn(err) {
				if t, left, err = c.store.Renumber(ctx, t, left); err == nil {
					heldNow, err = c.store.InsertKeyed(ctx, t, left, wait)
				}
			}
			return err
		}
		err = c.persist(ctx, "submit with keys", key, final, func() (err error) {
			if wait == store.KeysTogether {
				return insert()
			}
			c.aside.probe(func() { err = insert() })
			return err
		})
	}
	switch {
	case err == nil:
		return c.insertedKeyed(t, items, heldNow)
	case store.IsDataError(err) && len(items) > 1:
		half := len(items) / 2
		held = c.insertKeyedRoll(ctx, key, items[:half], wait)
		return append(held, c.insertKeyedRoll(ctx, key, items[half:], wait)...)
	case store.IsHeld(err) && wait != store.KeysApart:
		return c.insertKeyedRoll(ctx, key, items, store.KeysApart)
	case store.IsDataError(err):
		err = asyncflow.InvalidField("context", "was refused by Postgres: %v", errors.Unwrap(err))
	default:
		err = uncertain(err)
	}
	for _, s := range items {
		s.end(err)
	}
	return nil
}

// insertedKeyed answers the callers of tasks that were inserted, or whose keys belong to existing
// tasks. It returns the tasks whose keys are locked.
func (c *Committer) insertedKeyed(
	t *store.Type, items []*submission, heldNow []*store.Insertion,
) (held []*submission) {
	waits := make(map[*store.Insertion]bool, len(heldNow))
	for _, item := range heldNow {
		waits[item] = true
	}
	var fresh []*submission
	for _, s := range items {
		switch holder := s.Key.Holder; {
		case waits[&s.Insertion]:
			held = append(held, s)
		case s.Key.Reused:
			s.end(keyReused(holder))
		case holder.Number != 0:
			s.result.ID, s.result.Existing = holder, true
			s.end(nil)
		default:
			fresh = append(fresh, s)
		}
	}
	c.start(t, inserted(fresh))
	return held
}

// keyReused returns the error for a key that belongs to a task with another context.
func keyReused(holder asyncflow.TaskID) error {
	return &asyncflow.Error{Code: asyncflow.CodeKeyReused, Fields: []asyncflow.FieldError{
		{Field: "key", Message: "stands for task " + holder.String() + ", which has another context"}}}
}

// heldError returns the error for a locked key.
func heldError(err error) error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second,
		Message: "another submit with this key is under way; try again", Err: err}
}

// readExisting fills in the status of tasks that existed before. If such a task was dropped with
// its roll, which this node has just learned, the new task is submitted after all.
func (c *Committer) readExisting(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []store.Submitted,
) {
	for i := range results {
		r := &results[i]
		if !r.Existing || r.Err != nil {
			continue
		}
		task, err := c.store.Task(ctx, tenant, r.ID)
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
			t, missing := c.store.Catalog.Type(tenant, r.ID.Type)
			if missing == nil && !t.Has(r.ID.Position()) {
				*r = c.submit(ctx, tenant, tasks[i:i+1], make([]store.Submitted, 1), func() {})[0]
				continue
			}
		}
		r.Stage, r.Status, r.OrderTime, r.Err = task.Stage, task.Status, task.OrderTime, err
		r.WaitsUntil = waitsUntil(task)
	}
}

// waitsUntil returns when a task stops waiting for the first of its dependencies; zero: never.
func waitsUntil(task store.Task) (first time.Time) {
	if task.WaitsFor != asyncflow.WaitDependencies {
		return first
	}
	for _, d := range task.Dependencies {
		open := d.Status == asyncflow.DependencyRunning || d.Status == asyncflow.DependencyMissing
		if open && !d.Until.IsZero() && (first.IsZero() || d.Until.Before(first)) {
			first = d.Until
		}
	}
	return first
}
