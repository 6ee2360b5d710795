package store

// forgetTypes drops what this node keeps for task types of a tenant that are gone, so that
// short-lived types leave nothing behind. The catalog calls it after every change.
func (s *Store) forgetTypes(tenant string) {
	gone := func(key TypeKey) bool {
		if key.Tenant != tenant {
			return false
		}
		_, err := s.Catalog.Type(key.Tenant, key.Type)
		return err != nil
	}
	s.submits.forget(gone)
	s.keyed.forget(gone)
	s.settles.forget(gone)
	s.reports.forget(gone)
	s.extends.forget(gone)
	s.leasesOf.forget(gone)
	s.unholds.forget(gone)
	s.marks.Forget(gone)
	s.numbers.forget(gone)
	s.churn.Range(func(key, _ any) bool {
		if gone(key.(TypeKey)) {
			s.churn.Delete(key)
		}
		return true
	})
}

// forget drops the queues of types that are gone, except those with something under way.
func (g *gatherer[T]) forget(gone func(TypeKey) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, q := range g.queues {
		if len(q.items) == 0 && q.writing == 0 && !q.timer && !q.awaits && gone(key) {
			delete(g.queues, key)
		}
	}
}

// forget drops the unused numbers of types that are gone.
func (ns *numbers) forget(gone func(TypeKey) bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for key := range ns.blocks {
		if gone(key) {
			delete(ns.blocks, key)
		}
	}
}
