package store

// For tests that look at the plans of the hot statements.
var HotSettings = hotSettings

const (
	TakeReadySQL = takeReadySQL
	HeadSQL      = headSQL

	TakeLeaseSQL   = takeLeaseSQL
	ExtendLeaseSQL = extendLeaseSQL
)

// Fill returns a statement with the type's table names in it.
func (t *Type) Fill(sql string) string { return t.tables.at(t.Begin, sql) }

// ForgetNumbers has the next submits take new blocks of numbers.
func (s *Store) ForgetNumbers() { s.numbers = newNumbers(s) }
