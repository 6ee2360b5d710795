package tasks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// condition is a condition on the rows of stateJoins that only some filters set, so that the
// statements of all other filters stay as they are. Its name stands for its value.
type condition struct {
	name, sql string
	value     any
}

// conditions returns the conditions of a filter, in a fixed order. Without a type they are without
// values.
func (c criteria) conditions(t *config.Type) (all []condition) {
	add := func(wanted bool, name, sql string, value any) {
		if wanted {
			all = append(all, condition{name, sql, value})
		}
	}
	add(!c.endedSince.IsZero(), "$from", hasEndedSQL+` AND j.at >= $from`, c.endedSince)
	add(!c.endedUntil.IsZero(), "$to", hasEndedSQL+` AND j.at < $to`, c.endedUntil)
	add(c.attempts > 0, "$removed", ``, removedStages(t))
	add(c.attempts > 0, "$least", attemptSQL, c.attempts)
	add(c.code != "", "$answers", ``, statusesOf(c.code))
	add(c.code != "", "$word", codeSQL, c.code)
	add(c.fingerprint != "", "$members", memberSQL, c.members)
	add(c.flowKey != "", "$flow", optionSQL("flow_key", "$flow"), c.flowKey)
	add(c.worker != "", "$mark", ``, asyncflow.RunLocationEnd(c.worker))
	add(c.worker != "", "$ran", ranSQL, c.worker)
	l := c.labels
	add(l.User != "", "$user", optionSQL("user", "$user"), l.User)
	add(len(l.Tags) > 0, "$every", tagsSQL("?&", "$every"), l.Tags)
	add(len(l.AnyTags) > 0, "$any", tagsSQL("?|", "$any"), l.AnyTags)
	add(l.Name != "", "$name", ``, l.Name)
	add(l.Name != "", "$value", metadataSQL, l.Value)
	add(c.parent.Type != "", "$number", ``, parentNumber(t, c.parent))
	add(c.parent.Type != "", "$parent", parentSQL, c.parent.String())
	return all
}

// parentNumber returns the number of a parent of the type's own; 0: it is of another.
func parentNumber(t *config.Type, parent asyncflow.TaskID) int64 {
	if t == nil || t.Name != parent.Type {
		return 0
	}
	return parent.Number
}

const (
	// hasEndedSQL holds for final tasks: the last row of their journal tells when they ended.
	hasEndedSQL = `
  AND l.id IS NULL AND w.id IS NULL AND j.final IS NOT NULL`

	// attemptSQL compares the attempt that is shown of a task. One that waits in a stage that was
	// removed is at the first attempt of another: see asyncflow.TaskType.Mapped.
	attemptSQL = `
  AND CASE WHEN l.id IS NULL AND coalesce(w.stage, r.stage) = ANY ($removed::text[]) THEN 1
    ELSE coalesce(l.attempt, w.attempt, r.attempt, j.attempt, 0) END >= $least::int`

	// codeSQL is asyncflow.ErrorCode in SQL, except that an error may give two codes: the status of
	// the answer, and the word at its beginning.
	codeSQL = `
  AND j.error IS NOT NULL AND (j.status = ANY ($answers::smallint[])
    OR j.outcome = 'lost' AND $word::text = 'lost' OR starts_with(j.error, $word::text || ': '))`

	// ranSQL holds for tasks that a worker runs, or ran an attempt of. OFFSET 0 is as in
	// contentSQL.
	ranSQL = `
  AND (l.worker = $ran::text OR EXISTS (SELECT FROM {journal} o
    WHERE o.type = t.type AND o.id = t.id
      AND right(o.endpoint, length($mark::text)) = $mark::text OFFSET 0))`

	// parentSQL holds for the children of a task, of all its fan-outs, and the tasks that it
	// started. The children of fan-outs are of its type, and name only its number.
	parentSQL = `
  AND (t.options->'spawned'->>'parent' = $parent::text
    OR t.options->'child'->>'parent' = $number::bigint::text)`
)

// optionSQL is a condition on a member of a task's options. It is missing in most tasks: to see
// that takes less than to parse their options.
func optionSQL(member, value string) string {
	return fmt.Sprintf(`
  AND position('"%[1]s"' IN t.options::text) > 0 AND t.options->>'%[1]s' = %[2]s::text`, member,
		value)
}

// tagsSQL is a condition on the tags of a task.
func tagsSQL(operator, value string) string {
	return `
  AND position('"tags"' IN t.options::text) > 0
  AND (t.options->'tags')::jsonb ` + operator + ` ` + value + `::text[]`
}

// metadataSQL is a condition on an entry of the metadata of a task.
const metadataSQL = `
  AND position('"metadata"' IN t.options::text) > 0
  AND t.options->'metadata'->>$name::text = $value::text`

// removedStages returns the stages that were removed and mapped to others.
func removedStages(t *config.Type) []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.StageMapping))
}

// statusesOf returns what stands in the column status of a journal for a code: the status of an
// answer, or the negative of why none came.
func statusesOf(code string) []int16 {
	if n, err := strconv.Atoi(code); err == nil {
		if n < 100 || n > 999 {
			return []int16{}
		}
		return []int16{int16(n)}
	}
	if class, ok := strings.CutSuffix(code, "xx"); ok && len(class) == 1 {
		first, _ := strconv.Atoi(class)
		all := make([]int16, 100)
		for i := range all {
			all[i] = int16(100*first + i)
		}
		return all
	}
	for f := range asyncflow.FailureCode(asyncflow.FailureCodes) {
		if f.String() == code && f != asyncflow.FailureOther {
			return []int16{-int16(f)}
		}
	}
	return []int16{}
}
