package store

// groups are rows of one table that are inserted together, by what those of a group have
// in common. That goes into the group's statement once, and only the rest as arrays, which
// Postgres takes to pieces value by value.
type groups[K comparable, Rows any] struct {
	keys []K
	rows []*Rows
}

// of returns the rows of a group. There are few, and mostly it is the one that was added
// last.
func (g *groups[K, Rows]) of(key K) *Rows {
	for i := len(g.keys) - 1; i >= 0; i-- {
		if g.keys[i] == key {
			return g.rows[i]
		}
	}
	g.keys, g.rows = append(g.keys, key), append(g.rows, new(Rows))
	return g.rows[len(g.rows)-1]
}
