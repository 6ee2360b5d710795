package store

// groups has rows to insert into one table, grouped by their common values. A group's statement has
// the common values once, and only the other values as arrays, which Postgres must unnest value by
// value.
type groups[K comparable, Rows any] struct {
	keys []K
	rows []*Rows
}

// of returns the rows of a group. There are few groups, and mostly it is the latest.
func (g *groups[K, Rows]) of(key K) *Rows {
	for i := len(g.keys) - 1; i >= 0; i-- {
		if g.keys[i] == key {
			return g.rows[i]
		}
	}
	g.keys, g.rows = append(g.keys, key), append(g.rows, new(Rows))
	return g.rows[len(g.rows)-1]
}
