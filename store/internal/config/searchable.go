package config

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// searchFromSQL has the searchable fields of a type t. A node of the version before that changes a
// type leaves them out of its spec: from then on it may submit tasks that aren't found by them.
const searchFromSQL = `CASE WHEN t.search_from IS NOT NULL
  AND t.spec->'searchable' IS NOT NULL THEN t.search_from END`

// SearchFrom returns the searchable fields, each with the first roll in which all tasks of the type
// are found by it.
func (l *Location) SearchFrom() map[string]int { return l.searchFrom }

// Searchable returns the fields by which all of the type's tasks in a roll are found in the table
// search of the roll, sorted. It belongs to the location, as a node that knows a roll must know the
// fields that are searchable there.
func (l *Location) Searchable(position int) []string {
	if len(l.searchFrom) == 0 || !slices.Contains(l.SetAt(position).searchable, position) {
		return nil
	}
	var fields []string
	for _, field := range slices.Sorted(maps.Keys(l.searchFrom)) {
		if l.searchFrom[field] <= position {
			fields = append(fields, field)
		}
	}
	return fields
}

// AwaitsSearch reports whether a field of the type is searchable only from the next roll on.
func (l *Location) AwaitsSearch() bool {
	for _, from := range l.searchFrom {
		if from > l.set.End {
			return true
		}
	}
	return false
}

// HasSearch reports whether a roll of a table set has a table search: not if a node of the version
// before opened it.
func HasSearch(
	ctx context.Context, db postgres.Querier, tables *TableNames, position int,
) (has bool, err error) {
	err = db.QueryRow(ctx, tables.SQL(0,
		`SELECT searchable FROM {rolls} WHERE table_set = $1 AND position = $2`), tables.set,
		position).Scan(&has)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return has, err
}
