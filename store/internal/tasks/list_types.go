package tasks

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// typesFor returns the types that may have tasks which a filter finds, by their names, from its
// FromType on.
func (s *Tasks) typesFor(ctx context.Context, tenant string, f Filter) ([]*config.Type, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.Type != "" {
		t, err := s.core.Catalog.Fresh(ctx, tenant, f.Type)
		return []*config.Type{t}, err
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
	return all, nil
}

// namesFor returns the names of the types that may have tasks which a filter without a type finds,
// in order. Those of a parent's children, or of the tasks with a key, are few.
func (s *Tasks) namesFor(ctx context.Context, tenant string, f Filter) (names []string, err error) {
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
	return slices.DeleteFunc(names, func(name string) bool { return name < f.FromType }), err
}

// checkParent refuses a parent of a type that doesn't exist.
func (s *Tasks) checkParent(ctx context.Context, tenant string, parent asyncflow.TaskID) error {
	if parent.Type == "" {
		return nil
	}
	_, err := s.core.Catalog.Fresh(ctx, tenant, parent.Type)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return asyncflow.InvalidField("parent", "is of a type that doesn't exist")
	}
	return err
}
