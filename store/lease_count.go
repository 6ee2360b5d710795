package store

import "sync/atomic"

// countLeased counts leased rows of a type for Vacuum.
func (s *Store) countLeased(t *Type, rows int) {
	key := t.set.Key()
	n, ok := s.churn.Load(key)
	if !ok {
		n, _ = s.churn.LoadOrStore(key, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(int64(rows))
}
