package settings

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// writeSearchFrom writes from which roll on all tasks of a type are found by each of its searchable
// fields. A type that was just created has no tasks yet. For a new field of another type that is
// the next roll, as a node that learns of it also learns of the field. before are the fields that
// the type had.
func writeSearchFrom(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, before []string,
	created bool,
) error {
	if len(t.Searchable) == 0 && len(before) == 0 {
		return nil
	}
	tables := config.NewTables(tenant, config.SharedSet)
	var old map[string]int
	var from, end int
	err := tx.QueryRow(ctx, tables.SQL(0, `
		SELECT coalesce(t.search_from, '{}'), t.from_pos, s.end_pos
		FROM {types} t JOIN {sets} s ON s.name = t.table_set WHERE t.name = $1`), t.Name).
		Scan(&old, &from, &end)
	if err != nil {
		return err
	}
	fields := map[string]int{}
	for _, field := range t.Searchable {
		known, kept := old[field]
		switch {
		case created:
			fields[field] = from
		case kept && slices.Contains(before, field):
			fields[field] = known
		default:
			fields[field] = end + 1
		}
	}
	if maps.Equal(old, fields) {
		return nil
	}
	doc, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, tables.SQL(0,
		`UPDATE {types} SET search_from = nullif($2::text, '{}')::json WHERE name = $1`),
		t.Name, string(doc))
	return err
}
