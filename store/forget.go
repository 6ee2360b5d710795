package store

// forgetTypes drops what this node keeps of a tenant's task types that are gone, so that types
// that come and go leave nothing behind. The catalog calls it after every change.
func (s *Store) forgetTypes(tenant string) {
	gone := func(key TypeKey) bool {
		if key.Tenant != tenant {
			return false
		}
		_, err := s.Catalog.Type(key.Tenant, key.Type)
		return err != nil
	}
	s.marks.forget(gone)
	s.numbers.forget(gone)
	s.churn.Range(func(key, _ any) bool {
		if gone(key.(TypeKey)) {
			s.churn.Delete(key)
		}
		return true
	})
}

// forget drops the marks of types that are gone.
func (m *marks) forget(gone func(TypeKey) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.types {
		if gone(key) {
			delete(m.types, key)
		}
	}
}

// forget drops the numbers that are left over of types that are gone.
func (ns *numbers) forget(gone func(TypeKey) bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for key := range ns.blocks {
		if gone(key) {
			delete(ns.blocks, key)
		}
	}
}
