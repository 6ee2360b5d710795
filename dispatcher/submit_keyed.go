package dispatcher

import (
	"cmp"
	"context"
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

// insertKeyed inserts tasks with keys, and answers their callers. It returns the tasks with keys
// that other transactions lock.
func (c *Committer) insertKeyed(
	ctx context.Context, key store.TypeKey, items []*submission, wait store.KeyWait,
) (held []*submission) {
	items = dropLate(slices.Clone(items))
	if len(items) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, lastUntil(items))
	defer cancel()
	slices.SortFunc(items, func(a, b *submission) int {
		return cmp.Or(cmp.Compare(a.ID.Position(), b.ID.Position()),
			cmp.Compare(a.Key.Name, b.Key.Name), cmp.Compare(a.ID.Number, b.ID.Number))
	})
	now, later := withoutRepeated(items)
	held = c.insertKeyedNow(ctx, key, now, wait)
	return append(held, c.insertKeyed(ctx, key, later, wait)...)
}

// withoutRepeated returns the sorted items without submits that replace the task of an earlier item
// with the same key. These come in a later transaction: each is judged by its own rights, by the
// task that is there then.
func withoutRepeated(items []*submission) (now, later []*submission) {
	for i, s := range items {
		if i > 0 && s.Key.Replace != nil && s.Key.Name == items[i-1].Key.Name {
			later = append(later, s)
		} else {
			now = append(now, s)
		}
	}
	return now, later
}

// insertKeyedNow is insertKeyed for tasks that are sorted by roll and key. If it may not wait for a
// lock, it tries again, and waits for each key by itself.
func (c *Committer) insertKeyedNow(
	ctx context.Context, key store.TypeKey, items []*submission, wait store.KeyWait,
) (held []*submission) {
	// Apart, no key is waited for: it is a table that is locked.
	apart := wait == store.KeysApart
	var heldNow []*store.Insertion // of the last try
	c.insertApart(ctx, key, items, insertion{
		what:  "submit with keys",
		final: func(err error) bool { return isFinal(err) || !apart && store.IsHeld(err) },
		insert: func(t *store.Type, items []*store.Insertion) (err error) {
			insert := func() { heldNow, err = c.store.InsertKeyed(ctx, t, items, wait) }
			if wait == store.KeysTogether {
				insert()
			} else {
				c.failedWrites.probe(insert)
			}
			return err
		},
		ended: func(t *store.Type, items []*submission) {
			held = append(held, c.insertedKeyed(t, items, heldNow)...)
		},
		failed: func(items []*submission, err error) {
			if store.IsHeld(err) && !apart {
				held = append(held, c.insertKeyedNow(ctx, key, items, store.KeysApart)...)
				return
			}
			endAll(items, uncertain(err))
		},
	})
	return held
}

// insertedKeyed answers the callers of tasks that were inserted, or that exist already under their
// keys. It returns the tasks with locked keys.
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
		case s.Key.Refused != nil:
			s.end(s.Key.Refused)
		case s.Key.Replaced != nil:
			s.endReplaced()
		case holder.Number != 0:
			s.endExisting()
		default:
			fresh = append(fresh, s)
		}
	}
	c.start(t, inserted(fresh))
	return held
}

// heldError returns the error for a locked key.
func heldError(err error) error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second,
		Message: "another submit with this key is under way; try again", Err: err}
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

// endExisting answers the caller of a task with the key of an existing one.
func (s *submission) endExisting() {
	s.result.ID = s.Key.Holder
	s.result.Existing = true
	s.result.Reused = s.Key.Reused
	s.end(nil)
}

// commitDependent writes one batch of tasks that depend on other tasks, and answers their callers.
func (c *Committer) commitDependent(ctx context.Context, key store.TypeKey, items []*submission) {
	items = dropLate(slices.Clone(items))
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, lastUntil(items))
	defer cancel()
	slices.SortFunc(items, func(a, b *submission) int {
		return cmp.Or(cmp.Compare(a.ID.Position(), b.ID.Position()),
			cmp.Compare(a.ID.Number, b.ID.Number))
	})
	c.insertApart(ctx, key, items, insertion{
		what: "submit with dependencies", final: isFinal,
		insert: func(t *store.Type, items []*store.Insertion) error {
			return c.store.InsertDependent(ctx, t, items)
		},
		ended: func(_ *store.Type, items []*submission) {
			for _, s := range items {
				s.endDependent()
			}
		},
		failed: func(items []*submission, err error) {
			if store.IsHeld(err) {
				err = notKnown(err) // perhaps an earlier try was committed
			}
			endAll(items, uncertain(err))
		},
	})
}

// endDependent answers the caller of a task that was inserted, is refused, or existed before.
func (s *submission) endDependent() {
	switch {
	case s.Refused != nil:
		s.end(s.Refused)
	case s.Key != nil && s.Key.Holder.Number != 0:
		s.endExisting()
	default:
		s.result.ID = s.ID // its number may be another one now
		s.end(nil)
	}
}
