package dispatcher

import (
	"cmp"
	"context"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

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
				err = notKnown(err) // an earlier try may have been committed
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
	case s.Key != nil && s.Key.Reused:
		s.end(keyReused(s.Key.Holder))
	case s.Key != nil && s.Key.Holder.Number != 0:
		s.result.ID = s.Key.Holder
		s.result.Existing = true
		s.end(nil)
	default:
		s.result.ID = s.ID // it may have been renumbered
		s.end(nil)
	}
}
