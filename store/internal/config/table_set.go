package config

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// TableSet has the rolled tables that several task types share, or that one type has for itself, as
// this node knows them: an immutable snapshot.
type TableSet struct {
	Tenant string
	Name   string // "": the set that types share; otherwise the name of the type that has it
	// First, Begin and End are the positions of its oldest, its oldest live, and its open roll.
	First, Begin, End int
	// Closed reports whether it gets no more tasks: the type that had it has gone to another set.
	Closed bool
	// searchable are the positions of the rolls with a table search, if any type of it needs them.
	searchable []int

	Tables *TableNames
}

// SharedSet is the name of the set that types share.
const SharedSet = ""

// Shared reports whether types share the set.
func (s *TableSet) Shared() bool { return s.Name == SharedSet }

// Key names the set among the sets of all tenants.
func (s *TableSet) Key() TypeKey { return TypeKey{s.Tenant, s.Name} }

// Location says which tables have the tasks of a type. New tasks go to set; its rolls from a
// position on may have tasks of the type. Earlier ones are in the set earlier (nil: there are
// none), which has lower positions.
type Location struct {
	number  int32 // of the type in rows
	set     *TableSet
	from    int
	Earlier *TableSet
	// searchFrom are the searchable fields, each with the first roll in which all tasks of the type
	// are found by it; nil: there are none.
	searchFrom map[string]int
}

// Number returns the number of the type in rows.
func (l *Location) Number() int32 { return l.number }

// Set returns the table set that gets the type's new tasks.
func (l *Location) Set() *TableSet { return l.set }

// SetAt returns the set that has the type's tasks of the roll at a position.
func (l *Location) SetAt(position int) *TableSet {
	if l.Earlier != nil && position != 0 && position < l.from {
		return l.Earlier
	}
	return l.set
}

// Rolls returns the positions of the rolls that may have tasks of the type, ascending.
func (l *Location) Rolls() []int {
	return l.positions(func(s *TableSet) int { return s.First })
}

// Live returns the positions of rolls with ready tables that may have tasks of the type, ascending.
func (l *Location) Live() []int {
	return l.positions(func(s *TableSet) int { return s.Begin })
}

func (l *Location) positions(first func(*TableSet) int) (all []int) {
	if l.Earlier != nil {
		for p := first(l.Earlier); p <= min(l.Earlier.End, l.from-1); p++ {
			all = append(all, p)
		}
	}
	for p := max(first(l.set), l.from); p <= l.set.End; p++ {
		all = append(all, p)
	}
	return all
}

// NextRoll returns the first position from one on that may have tasks of the type; false: there is
// none.
func (l *Location) NextRoll(from int) (position int, ok bool) {
	for _, p := range l.Rolls() {
		if p >= from {
			return p, true
		}
	}
	return 0, false
}

// Has reports whether the roll at a position may have tasks of the type.
func (t *Type) Has(position int) bool {
	set := t.SetAt(position)
	first := set.First
	if set == t.set {
		first = max(first, t.from)
	}
	return first <= position && position <= set.End
}

// HasIn reports whether a roll of a table set may have tasks of the type.
func (t *Type) HasIn(set *TableSet, position int) bool {
	return t.SetAt(position).Name == set.Name && t.Has(position)
}

// locate sets where the type's tasks are.
func (t *Type) locate(at Location) {
	t.Location = at
	t.End = at.set.End
	t.First = at.set.End
	t.Begin = at.set.End
	if rolls := at.Rolls(); len(rolls) > 0 {
		t.First = rolls[0]
	}
	if live := at.Live(); len(live) > 0 {
		t.Begin = live[0]
	}
}

// locationsSQL reads where the tasks of a tenant's types are, and the sets without types.
const locationsSQL = `
SELECT coalesce(t.name, ''), coalesce(t.number, 0), coalesce(t.from_pos, 0),
  s.name, s.first_pos, s.begin_pos, s.end_pos,
  e.name, coalesce(e.first_pos, 0), coalesce(e.begin_pos, 0), coalesce(e.end_pos, 0),
  ` + searchFromSQL + `,
  CASE WHEN t.search_from IS NOT NULL THEN ARRAY(SELECT position FROM {rolls}
    WHERE table_set = s.name AND searchable) END,
  CASE WHEN t.search_from IS NOT NULL THEN ARRAY(SELECT position FROM {rolls}
    WHERE table_set = e.name AND searchable) END
FROM {types} t FULL JOIN {sets} s ON s.name = t.table_set
LEFT JOIN {sets} e ON e.name = t.earlier_set`

// ReadLocations reads the sets of a tenant, and where the tasks of its types are; with a type, only
// the tasks of the type.
func ReadLocations(
	ctx context.Context, q postgres.Querier, tenant, only string,
) (sets map[string]*TableSet, types map[string]Location, err error) {
	sql := locationsSQL
	args := []any{}
	if only != "" {
		sql += ` WHERE t.name = $1`
		args = []any{only}
	}
	rows, err := q.Query(ctx, NewTables(tenant, SharedSet).SQL(0, sql), args...)
	if err != nil {
		return nil, nil, err
	}
	sets = map[string]*TableSet{}
	types = map[string]Location{}
	known := func(read TableSet) *TableSet {
		set := sets[read.Name]
		if set == nil {
			set = &read
			set.Tenant = tenant
			set.Tables = NewTables(tenant, read.Name)
			sets[set.Name] = set
		}
		if read.searchable != nil {
			set.searchable = read.searchable
		}
		return set
	}
	var name string
	var l Location
	var read, before TableSet
	var beforeName *string
	_, err = pgx.ForEachRow(rows, []any{&name, &l.number, &l.from,
		&read.Name, &read.First, &read.Begin, &read.End,
		&beforeName, &before.First, &before.Begin, &before.End,
		&l.searchFrom, &read.searchable, &before.searchable}, func() error {
		l.set = known(read)
		l.Earlier = nil
		if beforeName != nil && before.First < l.from { // otherwise its rolls are dropped
			before.Name = *beforeName
			l.Earlier = known(before)
		}
		if name != "" {
			types[name] = l
		}
		l.searchFrom = nil // the next row has a map of its own
		return nil
	})
	for _, set := range sets {
		set.Closed = !set.Shared() && types[set.Name].set != set
	}
	return sets, types, err
}

// ReadLocation reads where the tasks of a type are; an unknown type is CodeNotFound.
func ReadLocation(ctx context.Context, q postgres.Querier, tenant, name string) (Location, error) {
	_, types, err := ReadLocations(ctx, q, tenant, name)
	l, ok := types[name]
	if err == nil && !ok {
		err = UnknownType(name)
	}
	return l, err
}

// Located returns the type with its tasks where they are now.
func Located(t *Type, at Location) *Type {
	if SameAs(t, at) {
		return t
	}
	fresh := *t
	fresh.locate(at)
	return &fresh
}

// SameAs reports whether a location is that of the type.
func SameAs(t *Type, at Location) bool {
	same := func(a, b *TableSet) bool {
		return (a == nil) == (b == nil) && (a == nil || a.Name == b.Name && a.First == b.First &&
			a.Begin == b.Begin && a.End == b.End)
	}
	return t.number == at.number && t.from == at.from && same(t.set, at.set) &&
		same(t.Earlier, at.Earlier) && maps.Equal(t.searchFrom, at.searchFrom)
}

// LockSet locks the row of a set and returns it as it is now; pgx.ErrNoRows when it is gone.
func LockSet(ctx context.Context, tx pgx.Tx, set *TableSet) (at TableSet, err error) {
	at = *set
	err = tx.QueryRow(ctx, set.Tables.SQL(0, `SELECT first_pos, begin_pos, end_pos FROM {sets}
		WHERE name = $1 FOR NO KEY UPDATE`), set.Name).Scan(&at.First, &at.Begin, &at.End)
	return at, err
}

// SmallTables returns the tables of token rows, and the outbox: all that stay small.
func (s *TableSet) SmallTables() []string {
	all := []string{s.Tables.Qualify("lease"), s.Tables.Qualify("wait"), s.Tables.Qualify("outbox")}
	for p := s.Begin; p <= s.End; p++ {
		all = append(all, s.Tables.Ready(p))
	}
	return all
}
