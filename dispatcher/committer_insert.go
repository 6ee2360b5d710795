package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// insertion says how tasks of one roll are inserted by themselves, and how their callers are
// answered.
type insertion struct {
	what   string                                              // for the log
	final  func(error) bool                                    // another try would fail as well
	insert func(t *store.Type, items []*store.Insertion) error // one try
	ended  func(t *store.Type, items []*submission)            // they are committed
	failed func(items []*submission, err error)                // they are not, as far as is known
}

// insertApart inserts tasks of a type, sorted by roll, in one transaction per roll. If Postgres
// refuses their data, it halves them until only the refused one fails.
func (c *Committer) insertApart(
	ctx context.Context, key store.TypeKey, items []*submission, in insertion,
) {
	idOf := func(s *submission) asyncflow.TaskID { return s.ID }
	for roll := range store.ByRoll(items, idOf) {
		halving(roll, func(items []*submission) error {
			t, err := c.insertRoll(ctx, key, insertions(items), in)
			if err != nil {
				return err
			}
			in.ended(t, items)
			return nil
		}, func(items []*submission, err error) {
			if store.IsDataError(err) {
				err = asyncflow.InvalidField("context", "was refused by Postgres: %v",
					errors.Unwrap(err))
			}
			in.failed(items, err)
		})
	}
}

// insertRoll tries to insert tasks of one roll until they are committed or fail for good. If the
// roll was sealed meanwhile, they go to the next one. It returns the type that they were inserted
// with.
func (c *Committer) insertRoll(
	ctx context.Context, key store.TypeKey, items []*store.Insertion, in insertion,
) (*store.Type, error) {
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return nil, err
	}
	err = c.persist(ctx, in.what, key, in.final, func() error {
		err := in.insert(t, items)
		if !store.RolledOn(err) {
			return err
		}
		if t, items, err = c.store.Renumber(ctx, t, items); err != nil {
			return err
		}
		return in.insert(t, items)
	})
	return t, err
}

// halving tries to write items. If Postgres refuses their data, it halves them until only the
// refused one fails.
func halving[T any](items []T, try func([]T) error, failed func([]T, error)) {
	err := try(items)
	switch {
	case err == nil:
	case store.IsDataError(err) && len(items) > 1:
		half := len(items) / 2
		halving(items[:half], try, failed)
		halving(items[half:], try, failed)
	default:
		failed(items, err)
	}
}

// endAll answers the callers of tasks that are not inserted.
func endAll(items []*submission, err error) {
	for _, s := range items {
		s.end(err)
	}
}

// lastUntil returns when the last of the tasks times out.
func lastUntil(items []*submission) (until time.Time) {
	for _, s := range items {
		if s.until.After(until) {
			until = s.until
		}
	}
	return until
}
