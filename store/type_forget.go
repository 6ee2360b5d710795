package store

// forgetTypes drops what this node keeps for task types of a tenant that are gone, so that
// short-lived types leave nothing behind. The catalog calls it after every change.
func (s *settings) forgetTypes(tenant string) {
	gone := func(key TypeKey) bool {
		if key.Tenant != tenant {
			return false
		}
		_, err := s.Catalog.Type(key.Tenant, key.Type)
		return err != nil
	}
	s.marks.Forget(gone)
	sets := s.Catalog.SetsOf(tenant)
	noSet := func(key TypeKey) bool { return key.Tenant == tenant && sets[key.Type] == nil }
	s.numbers.forget(noSet)
	s.leasedRows.Range(func(key, _ any) bool {
		if noSet(key.(TypeKey)) {
			s.leasedRows.Delete(key)
		}
		return true
	})
}
