package config

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// joinedRunsSQL has the runs of children in a roll for which tasks f waited that started them. $3
// and $4 are its first number and that of the next roll.
const joinedRunsSQL = `{fan_outs} f, ` + typeRunsSQL + `
	WHERE f.types IS NOT NULL AND f.closed AND u.type IN (` + TypesAtSQL + `)
	  AND u.first >= $3 AND u.first < $4`

// joinedInLine reports whether a task that waited for children of a roll is in line: it may read
// their results. Only rolls with such children cost more than one statement.
func (s *TableSet) joinedInLine(
	ctx context.Context, tx pgx.Tx, position int,
) (found bool, err error) {
	args := []any{s.Name, position, FirstOfRoll(position), FirstOfRoll(position + 1)}
	rows, _ := tx.Query(ctx, s.Tables.SQL(0, `SELECT DISTINCT f.type FROM `+joinedRunsSQL), args...)
	parents, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil || len(parents) == 0 {
		return false, err
	}
	_, types, err := ReadLocations(ctx, tx, s.Tenant, "")
	if err != nil {
		return false, err
	}
	seen := map[string]bool{}
	for _, l := range types {
		if !slices.Contains(parents, l.number) {
			continue
		}
		all := TokenTables(&Type{Location: l})
		key := strings.Join(all, ",")
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, table := range all {
			err := tx.QueryRow(ctx, s.Tables.SQL(0, `SELECT EXISTS (SELECT FROM `+joinedRunsSQL+`
				AND (f.type, f.id) IN (SELECT k.type, k.id FROM `+table+` k))`), args...).
				Scan(&found)
			if err != nil || found {
				return found, err
			}
		}
	}
	return false, nil
}
