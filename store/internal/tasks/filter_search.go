package tasks

import (
	"cmp"
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

// searchKey is what a filter looks for in a searchable field: the tasks that it finds have one of
// the entries.
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

// learnKeys finds out by which searchable fields of a type the tasks are found best: by the value
// that the fewest tasks have, in the latest roll where that is known. It is none if many tasks have
// each of them, and the status leaves a place with fewer. The number of tasks decides only where
// candidates come from.
func (c *criteria) learnKeys(ctx context.Context, db postgres.Querier, t *config.Type) error {
	from := t.SearchFrom()
	c.keys = slices.DeleteFunc(c.searchKeys(), func(key searchKey) bool {
		return from[key.field] == 0
	})
	rolls := t.Rolls()
	last := len(rolls) - 1
	for last >= 0 && len(t.Searchable(rolls[last])) == 0 {
		last--
	}
	if last < 0 {
		c.keys = nil
	}
	narrow := c.tables() != nil
	if len(c.keys) == 0 || len(c.keys) == 1 && !narrow {
		return nil
	}
	counts := make([]int, len(c.keys))
	selects := make([]string, len(c.keys))
	args := []any{t.Number(), fewFound}
	into := make([]any, len(c.keys))
	for i, key := range c.keys {
		args = append(args, key.entries)
		selects[i] = fmt.Sprintf(`(SELECT count(*) FROM (SELECT FROM {search}
			WHERE type = $1 AND entry = ANY ($%d::bigint[]) LIMIT $2::int + 1) s)`, len(args))
		into[i] = &counts[i]
	}
	err := db.QueryRow(ctx, t.SQL(rolls[last], `SELECT `+strings.Join(selects, ", ")), args...).
		Scan(into...)
	if err != nil {
		return err
	}
	order := make([]int, len(c.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })
	if narrow && counts[order[0]] > fewFound {
		c.keys = nil
		return nil
	}
	sorted := make([]searchKey, len(order))
	for i, place := range order {
		sorted[i] = c.keys[place]
	}
	c.keys = sorted
	return nil
}

// at returns the criteria as they read a roll: with the entries of the best field that is
// searchable there.
func (c criteria) at(t *config.Type, position int) criteria {
	c.entries = nil
	if len(c.keys) == 0 {
		return c
	}
	if key := firstKey(c.keys, t.Searchable(position)); key >= 0 {
		c.entries = c.keys[key].entries
	}
	return c
}

// firstKey returns the place of the first key of a field among some; -1: there is none.
func firstKey(keys []searchKey, fields []string) int {
	return slices.IndexFunc(keys, func(key searchKey) bool {
		return slices.Contains(fields, key.field)
	})
}

// found is candidates by the table search. Each entry has bounds of its own, so that Postgres reads
// the index in order.
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
	for i := range keys {
		if !slices.ContainsFunc(t.Rolls(), func(position int) bool {
			return firstKey(keys[i:i+1], t.Searchable(position)) < 0
		}) {
			return i
		}
	}
	return -1
}

// queueFoundTypes queues the query of the types of one table set that have tasks by their key, as
// keyFor says. After the batch they are in found.
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
