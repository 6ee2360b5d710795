package records

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/asyncflow/asyncflow"
)

// InsertSearchSQL adds what tasks of the type $3 are found by: see SearchEntry.
const InsertSearchSQL = `
INSERT INTO {search} (type, entry, id)
SELECT $3, u.* FROM unnest($1::bigint[], $2::bigint[]) u`

// DeleteSearchSQL deletes what tasks t of a roll are found by, in all fields that may ever have
// been searchable. A condition on t follows, and two brackets. The OFFSET leaves the planner one
// plan, a walk down the index for each entry.
const DeleteSearchSQL = `
DELETE FROM {search} WHERE ctid = ANY (ARRAY(
  SELECT s.ctid FROM {task} t, LATERAL {search_entries}(NULL, 0, t.options) e, LATERAL (
    SELECT ctid FROM {search} WHERE type = t.type AND entry = e AND id = t.id OFFSET 0) s
  WHERE t.options IS NOT NULL AND `

// OfTasksSQL is a condition for DeleteSearchSQL: the tasks of the type $1 with the ids $2. For its
// form see TakeAnyWaitSQL.
const OfTasksSQL = `t.ctid = ANY (ARRAY(
    SELECT k.t FROM unnest($2::bigint[]) AS u (id), LATERAL (
      SELECT ctid AS t FROM {task} WHERE type = $1 AND id BETWEEN u.id AND u.id
      ORDER BY id LIMIT 1) k))`

// RefillSearchSQL fills the table search of the roll $1, which is empty, from the tasks.
const RefillSearchSQL = `
INSERT INTO {search} (type, entry, id)
SELECT t.type, e, t.id FROM {task} t JOIN {types} y ON y.number = t.type,
  LATERAL {search_entries}(y.search_from, $1, t.options) e
WHERE y.search_from IS NOT NULL AND t.options IS NOT NULL`

// SearchEntry returns what stands for a value of a searchable field in the table search, as
// search_entry does in SQL: the beginning of a hash. However long the value, its row is as long as
// any other. Values may share an entry, so a task that is found by it still has to be compared.
func SearchEntry(field, value string) int64 {
	text := make([]byte, 0, 128)
	text = append(text, field...)
	text = append(text, 0)
	text = append(text, value...)
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// SearchEntries returns the entries of a task in some fields, each once.
func SearchEntries(fields []string, o *asyncflow.Options) (entries []int64) {
	for _, field := range fields {
		o.SearchValues(field, func(value string) {
			entries = append(entries, SearchEntry(field, value))
		})
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}
