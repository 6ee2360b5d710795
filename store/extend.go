package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// extendItem is a lease whose time is to be moved.
type extendItem struct {
	id    int64
	seq   int
	until time.Time
	done  func(stands bool, err error)
}

// Extend moves the time of a lease, if it still stands, and calls done with
// whether it does.
func (s *Store) Extend(tenant string, l asyncflow.Lease, until time.Time, done func(stands bool, err error)) {
	s.accepted.forget(acceptedKeyOf(tenant, l.ID, l.Seq)) // until is later
	s.extends.add(TypeKey{tenant, l.ID.Type}, extendItem{l.ID.Number, l.Seq, until, done})
}

func (s *Store) writeExtends(ctx context.Context, key TypeKey, items []extendItem) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	slices.SortFunc(items, func(a, b extendItem) int { return cmp.Compare(a.id, b.id) }) // one order of locks for all batches
	standing, err := s.extendLeases(ctx, key, items)
	for _, item := range items {
		s.watched.tell(key, item.id)
		item.done(standing[leaseKey{item.id, int16(item.seq)}], err)
	}
}

// leaseKey names one lease of a task.
type leaseKey struct {
	id  int64
	seq int16
}

// extendLeases tries until the database answers: repeating it changes nothing.
func (s *Store) extendLeases(ctx context.Context, key TypeKey, items []extendItem) (map[leaseKey]bool, error) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(items))
	seqs := make([]int16, len(items))
	untils := make([]time.Time, len(items))
	for i, item := range items {
		ids[i], seqs[i], untils[i] = item.id, int16(item.seq), item.until
	}
	standing := map[leaseKey]bool{}
	err = s.persist(ctx, "extend", key, func() error {
		rows, err := s.hot(key.Tenant).Query(ctx, t.tables.at(0, extendLeaseSQL), ids, seqs, untils)
		if err != nil {
			return err
		}
		var k leaseKey
		_, err = pgx.ForEachRow(rows, []any{&k.id, &k.seq}, func() error {
			standing[k] = true
			return nil
		})
		return err
	})
	return standing, wrap(err, "Extend(%q, %q)", key.Tenant, key.Type)
}
