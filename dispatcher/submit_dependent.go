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

// commitDependent writes one batch of tasks that depend on others, and answers their callers.
func (c *Committer) commitDependent(
	ctx context.Context, key store.TypeKey, items []*submission,
) {
	now := time.Now()
	items = slices.DeleteFunc(slices.Clone(items), func(s *submission) bool {
		late := now.After(s.until)
		if late {
			s.end(unanswered("the database doesn't answer; try again"))
		}
		return late
	})
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, lastUntil(items))
	defer cancel()
	slices.SortFunc(items, func(a, b *submission) int {
		return cmp.Or(cmp.Compare(a.ID.Position(), b.ID.Position()),
			cmp.Compare(a.ID.Number, b.ID.Number))
	})
	for roll := range byRoll(items) {
		c.insertDependent(ctx, key, roll)
	}
}

// insertDependent inserts tasks of one roll. If Postgres refuses their data, it halves them until
// only the refused one fails.
func (c *Committer) insertDependent(ctx context.Context, key store.TypeKey, items []*submission) {
	left := insertions(items)
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err == nil {
		err = c.persist(ctx, "submit with dependencies", key, isFinal, func() (err error) {
			if err = c.store.InsertDependent(ctx, t, left); store.RolledOn(err) {
				if t, left, err = c.store.Renumber(ctx, t, left); err == nil {
					err = c.store.InsertDependent(ctx, t, left)
				}
			}
			return err
		})
	}
	switch {
	case err == nil:
		for _, s := range items {
			s.endDependent()
		}
		return
	case store.IsDataError(err) && len(items) > 1:
		half := len(items) / 2
		c.insertDependent(ctx, key, items[:half])
		c.insertDependent(ctx, key, items[half:])
		return
	case store.IsDataError(err):
		err = asyncflow.InvalidField("context", "was refused by Postgres: %v", errors.Unwrap(err))
	case store.IsHeld(err):
		err = notKnown(err) // an earlier try may have been committed
	default:
		err = uncertain(err)
	}
	for _, s := range items {
		s.end(err)
	}
}

// endDependent answers the caller of a task that was inserted, is refused, or existed before.
func (s *submission) endDependent() {
	switch {
	case s.Refused != nil:
		s.end(s.Refused)
	case s.Key != nil && s.Key.Reused:
		s.end(keyReused(s.Key.Holder))
	case s.Key != nil && s.Key.Holder.Number != 0:
		s.result.ID, s.result.Existing = s.Key.Holder, true
		s.end(nil)
	default:
		s.result.ID = s.ID // it may have been renumbered
		s.end(nil)
	}
}
