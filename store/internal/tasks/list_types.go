package tasks

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// typesFor returns the types with tasks that a filter may find, by their names, from its FromType
// on.
func (s *lists) typesFor(ctx context.Context, tenant string, f Filter) ([]*config.Type, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.Type != "" {
		t, err := s.core.Catalog.Fresh(ctx, tenant, f.Type)
		if err != nil {
			return nil, err
		}
		return s.searchableNow(ctx, tenant, []*config.Type{t}, f)
	}
	if err := s.checkParent(ctx, tenant, f.Parent); err != nil {
		return nil, err
	}
	names, err := s.namesFor(ctx, tenant, f)
	if err != nil {
		return nil, err
	}
	var all []*config.Type
	for _, name := range names {
		t, err := s.core.Catalog.Type(tenant, name)
		switch {
		case asyncflow.CodeOf(err) == asyncflow.CodeNotFound: // it was just made, or deleted
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, t)
	}
	return s.searchableNow(ctx, tenant, all, f)
}

// searchableNow returns types with their searchable fields as they are now, if these matter for a
// filter. Another node may have left out a field this second: its tasks aren't found by the field
// any more.
func (s *lists) searchableNow(
	ctx context.Context, tenant string, types []*config.Type, f Filter,
) ([]*config.Type, error) {
	if criteriaOf(f).searchKeys() == nil || !slices.ContainsFunc(types, hasSearch) {
		return types, nil
	}
	only := ""
	if len(types) == 1 {
		only = types[0].Name
	}
	_, now, err := config.ReadLocations(ctx, s.core.DB(tenant), tenant, only)
	if err != nil {
		return nil, err
	}
	all := make([]*config.Type, len(types))
	for i, t := range types {
		all[i] = t
		if at, ok := now[t.Name]; ok {
			all[i] = config.Located(t, at)
		}
	}
	return all, nil
}

// hasSearch reports whether there are searchable fields in a type.
func hasSearch(t *config.Type) bool { return len(t.SearchFrom()) > 0 }

// namesFor returns the names of the types with tasks that a filter without a type may find, in
// order. Those of a parent's children, or of the tasks with a key, are few.
func (s *lists) namesFor(ctx context.Context, tenant string, f Filter) (names []string, err error) {
	tables := config.NewTables(tenant, config.SharedSet)
	query := func(sql string, args ...any) error {
		rows, _ := s.core.DB(tenant).Query(ctx, tables.SQL(0, sql), args...)
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}
	all := slices.Sorted(maps.Keys(s.core.Catalog.TypesOf(tenant)))
	switch {
	case f.Key != "":
		err = query(`SELECT type FROM {keys} WHERE type = ANY ($1) AND key = $2`, all, f.Key)
	case f.Parent.Type != "":
		err = query(`
			SELECT y.name FROM {types} y WHERE y.name = $1 OR y.number IN (
			  SELECT unnest(s.types) FROM {types} p JOIN {spawns} s ON s.type = p.number
			  WHERE p.name = $1 AND s.id = $2
			  UNION ALL
			  SELECT unnest(o.types) FROM {types} p JOIN {fan_outs} o ON o.type = p.number
			  WHERE p.name = $1 AND o.id = $2)`, f.Parent.Type, f.Parent.Number)
	default:
		names = all
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		if f.Reverse {
			return f.FromType != "" && name > f.FromType
		}
		return name < f.FromType
	}), err
}

// checkParent refuses a parent of a type that doesn't exist.
func (s *lists) checkParent(ctx context.Context, tenant string, parent asyncflow.TaskID) error {
	if parent.Type == "" {
		return nil
	}
	_, err := s.core.Catalog.Fresh(ctx, tenant, parent.Type)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return asyncflow.InvalidField("parent", "is of a type that doesn't exist")
	}
	return err
}

// checkedRolls is the most rolls of a table set that withCandidates asks about.
const checkedRolls = 50

// withCandidates leaves out types without any task that may match. Otherwise a list of all types
// would take a query or two for each of them.
func (s *lists) withCandidates(
	ctx context.Context, types []*config.Type, f Filter,
) ([]*config.Type, error) {
	if len(types) < 2 {
		return types, nil
	}
	bySet := map[string][]*config.Type{}
	byKey := map[string][]*config.Type{}
	var kept []*config.Type
	c := criteriaOf(f)
	keys := c.searchKeys()
	for _, t := range types {
		set := t.Set()
		switch {
		case t.Earlier != nil || set.End-set.First >= checkedRolls:
			kept = append(kept, t)
		case c.tables() == nil && keyFor(t, keys) >= 0:
			byKey[set.Name] = append(byKey[set.Name], t)
		default:
			bySet[set.Name] = append(bySet[set.Name], t)
		}
	}
	err := s.searching(ctx, types[0].Tenant, func(tx pgx.Tx) error {
		found, err := foundTypes(ctx, tx, byKey, keys)
		if err != nil {
			return err
		}
		kept = append(kept, found...)
		for _, alike := range bySet {
			found, err := candidateTypes(ctx, tx, alike, f)
			if err != nil {
				return err
			}
			kept = append(kept, found...)
		}
		return nil
	})
	if config.RolledOn(err) { // a roll was just dropped
		return types, nil
	}
	slices.SortFunc(kept, func(a, b *config.Type) int { return strings.Compare(a.Name, b.Name) })
	return kept, err
}

// foundTypes returns the types, by table sets, with tasks by their searchable fields.
func foundTypes(
	ctx context.Context, tx pgx.Tx, bySet map[string][]*config.Type, keys []searchKey,
) (found []*config.Type, err error) {
	b := &pgx.Batch{}
	numbers := map[int32]bool{}
	for _, alike := range bySet {
		queueFoundTypes(b, alike, keys, numbers)
	}
	if b.Len() == 0 {
		return nil, nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	for _, alike := range bySet {
		for _, t := range alike {
			if numbers[t.Number()] {
				found = append(found, t)
			}
		}
	}
	return found, nil
}

// candidateTypes returns the types of one table set with tasks that may match. The ORDER BY makes
// Postgres read an index for each of them.
func candidateTypes(
	ctx context.Context, tx pgx.Tx, types []*config.Type, f Filter,
) (found []*config.Type, err error) {
	c := criteriaOf(f)
	if !f.EndedSince.IsZero() {
		if c.idle, err = idleRolls(ctx, tx, types[0], f.EndedSince); err != nil {
			return nil, err
		}
	}
	tables := c.tables() // pending tasks are looked for among all tasks
	if tables == nil {
		tables = []string{`{task} c WHERE type = $1`}
	}
	byNumber := map[int32]*config.Type{}
	for _, t := range types {
		byNumber[t.Number()] = t
	}
	var selects []string
	for p := types[0].Set().First; p <= types[0].Set().End; p++ {
		for _, table := range tables {
			sql := types[0].SQL(p, `SELECT u.n FROM unnest($1::int[]) AS u (n),
				LATERAL (SELECT id FROM `+strings.Replace(table, "type = $1", "type = u.n", 1)+`
				  ORDER BY id LIMIT 1) c`)
			if !c.idle[p] && !slices.Contains(selects, sql) {
				selects = append(selects, sql)
			}
		}
	}
	if len(selects) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, strings.Join(selects, " UNION "),
		slices.Collect(maps.Keys(byNumber)))
	if err != nil {
		return nil, err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	for _, n := range numbers {
		found = append(found, byNumber[n])
	}
	return found, err
}
