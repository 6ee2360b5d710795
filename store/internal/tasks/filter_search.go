package tasks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// searchKey is what a filter looks for in a searchable field: one of the entries is in the tasks
// that it finds.
type searchKey struct {
	field   string
	entries []int64
}

// fewFound is how many tasks with an entry are few enough to read them instead of a place.
const fewFound = PageLook

// searchKeys returns what a filter looks for in fields that may be searchable.
func (c criteria) searchKeys() (keys []searchKey) {
	add := func(field string, values ...string) {
		key := searchKey{field: field}
		for _, value := range values {
			key.entries = append(key.entries, records.SearchEntry(field, value))
		}
		keys = append(keys, key)
	}
	if c.flowKey != "" {
		add(asyncflow.SearchFlowKey, c.flowKey)
	}
	if c.labels.User != "" {
		add(asyncflow.SearchUser, c.labels.User)
	}
	if c.labels.Name != "" {
		add(asyncflow.SearchMetadata+c.labels.Name, c.labels.Value)
	}
	for _, tag := range c.labels.Tags {
		add(asyncflow.SearchTags, tag)
	}
	if len(c.labels.AnyTags) > 0 {
		add(asyncflow.SearchTags, c.labels.AnyTags...)
	}
	return keys
}

// learnKeys notes the searchable fields by which tasks of a type may be found.
func (c *criteria) learnKeys(t *config.Type) {
	from := t.SearchFrom()
	c.keys = slices.DeleteFunc(c.searchKeys(), func(key searchKey) bool {
		return from[key.field] == 0
	})
	c.best = map[int][]int64{}
}

// inRoll returns the criteria as they read a roll. The first call for a roll finds out by which
// value its tasks are found best.
func (c criteria) inRoll(
	ctx context.Context, db postgres.Querier, t *config.Type, position int,
) (criteria, error) {
	c.entries = nil
	if len(c.keys) == 0 {
		return c, nil
	}
	entries, known := c.best[position]
	if !known {
		var err error
		if entries, err = c.bestEntries(ctx, db, t, position); err != nil {
			return c, err
		}
		c.best[position] = entries
	}
	c.entries = entries
	return c, nil
}

// bestEntries returns the entries of the value that is in the fewest tasks of a roll, of the fields
// that are searchable there. It is nil if there is none, or if each value is in many tasks, and the
// status leaves a place with fewer. The number of tasks decides only where candidates come from.
func (c criteria) bestEntries(
	ctx context.Context, db postgres.Querier, t *config.Type, position int,
) ([]int64, error) {
	fields := t.Searchable(position)
	var keys []searchKey
	for _, key := range c.keys {
		if slices.Contains(fields, key.field) {
			keys = append(keys, key)
		}
	}
	narrow := c.tables() != nil
	switch {
	case len(keys) == 0:
		return nil, nil
	case len(keys) == 1 && !narrow:
		return keys[0].entries, nil
	}
	counts, err := countEntries(ctx, db, t, position, keys)
	if err != nil {
		return nil, err
	}
	fewest := slices.Min(counts)
	if narrow && fewest > fewFound {
		return nil, nil
	}
	return keys[slices.Index(counts, fewest)].entries, nil
}

// countEntries counts the tasks of a roll with each of some values, up to one more than fewFound.
func countEntries(
	ctx context.Context, db postgres.Querier, t *config.Type, position int, keys []searchKey,
) ([]int, error) {
	counts := make([]int, len(keys))
	selects := make([]string, len(keys))
	args := []any{t.Number(), fewFound}
	into := make([]any, len(keys))
	for i, key := range keys {
		args = append(args, key.entries)
		selects[i] = fmt.Sprintf(`(SELECT count(*) FROM (SELECT FROM {search}
			WHERE type = $1 AND entry = ANY ($%d::bigint[]) LIMIT $2::int + 1) s)`, len(args))
		into[i] = &counts[i]
	}
	err := db.QueryRow(ctx, t.SQL(position, `SELECT `+strings.Join(selects, ", ")), args...).
		Scan(into...)
	return counts, err
}

// found is candidates by the table search. Each entry sets bounds of its own, so that Postgres
// reads the index in order.
func (c criteria) found(bounds string) string {
	param := `$5`
	if c.content != "" {
		param = `$6`
	}
	all := make([]string, len(c.entries))
	for i := range c.entries {
		all[i] = fmt.Sprintf(`(SELECT id FROM {search} c WHERE type = $1
  AND entry = (%s::bigint[])[%d] AND %s)`, param, i+1, bounds)
	}
	if len(all) == 1 {
		return all[0]
	}
	return `(SELECT DISTINCT id FROM (` + strings.Join(all, " UNION ALL ") + `) c WHERE ` +
		bounds + `)`
}

// bound adds the parameters of found to the ones before.
func (c criteria) bound(args ...any) []any {
	if c.entries == nil {
		return args
	}
	return append(args, c.entries)
}

// keyFor returns the place of a key by which all tasks of a type are found; -1: there is none.
func keyFor(t *config.Type, keys []searchKey) int {
	if len(keys) == 0 || len(t.SearchFrom()) == 0 || len(t.Rolls()) == 0 {
		return -1
	}
	return slices.IndexFunc(keys, func(key searchKey) bool {
		return !slices.ContainsFunc(t.Rolls(), func(position int) bool {
			return !slices.Contains(t.Searchable(position), key.field)
		})
	})
}

// queueFoundTypes queues the query of the types of one table set with tasks by their key, as keyFor
// says. After the batch they are in found.
func queueFoundTypes(
	b *pgx.Batch, types []*config.Type, keys []searchKey, found map[int32]bool,
) {
	byKey := map[int][]*config.Type{}
	for _, t := range types {
		key := keyFor(t, keys)
		byKey[key] = append(byKey[key], t)
	}
	for key, alike := range byKey {
		var numbers []int32
		var positions []int
		for _, t := range alike {
			numbers = append(numbers, t.Number())
			positions = append(positions, t.Rolls()...)
		}
		slices.Sort(positions)
		var selects []string
		for _, p := range slices.Compact(positions) {
			selects = append(selects, alike[0].SQL(p, `
				SELECT u.n FROM unnest($1::int[]) AS u (n), unnest($2::bigint[]) AS e (n), LATERAL (
				  SELECT FROM {search} WHERE type = u.n AND entry = e.n ORDER BY id LIMIT 1) s`))
		}
		b.Queue(strings.Join(selects, " UNION "), numbers, keys[key].entries).
			Query(func(rows pgx.Rows) error {
				var number int32
				_, err := pgx.ForEachRow(rows, []any{&number}, func() error {
					found[number] = true
					return nil
				})
				return err
			})
	}
}
