package store

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// criteria are what tasks of a type are chosen by.
type criteria struct {
	statuses    []string // nil: any
	stage       string
	text        string // in the last error
	since       time.Time
	until       time.Time
	endedBefore time.Time // zero: whenever, or not at all
}

func criteriaOf(f Filter) criteria {
	c := criteria{stage: f.Stage, text: f.Error, since: f.Since, until: f.Until}
	if f.Status != "" {
		c.statuses = []string{string(f.Status)}
	}
	return c
}

// candidates are, for each status, the rows that may belong to tasks of that
// status. c is the table whose id is followed.
var candidates = map[asyncflow.Status]string{
	asyncflow.StatusRunning:   `{lease} c WHERE true`,
	asyncflow.StatusWaiting:   `{wait} c WHERE true`,
	asyncflow.StatusFailed:    `{journal} c WHERE c.final <> 'succeeded'`,
	asyncflow.StatusCancelled: `{journal} c WHERE c.final <> 'succeeded'`,
}

// candidates returns where to look for the tasks: in a small table or index if one
// will do.
func (c criteria) candidates() string {
	if len(c.statuses) == 1 {
		if from := candidates[asyncflow.Status(c.statuses[0])]; from != "" {
			return from
		}
	}
	return `{task} c WHERE true`
}

// criteriaSQL is a condition on what stateJoins join, with the parameters that args
// returns.
const criteriaSQL = `($3::timestamptz IS NULL OR t.created_at >= $3) AND ($4::timestamptz IS NULL OR t.created_at < $4)
  AND ($5::text[] IS NULL OR ` + statusSQL + ` = ANY ($5))
  AND ($6::text[] IS NULL OR coalesce(l.stage, w.stage, r.stage, j.stage) = ANY ($6))
  AND ($7 = '' OR position(lower($7) IN lower(coalesce(j.error, ''))) > 0)
  AND ($8::timestamptz IS NULL OR j.at < $8)`

// args are the parameters $3 to $8.
func (c criteria) args(t *Type) []any {
	return []any{orNull(c.since), orNull(c.until), c.statuses, c.stages(t), c.text, orNull(c.endedBefore)}
}

// stages returns the names of the stage by which token and journal rows know it: those
// of removed stages too that are mapped to it. nil is any.
func (c criteria) stages(t *Type) []string {
	if c.stage == "" {
		return nil
	}
	return t.NamesOf(c.stage)
}
