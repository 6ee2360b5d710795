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

// pendingSQL tells whether a task is pending: stateJoins found its token row in
// neither of two places, and it is not final.
const pendingSQL = `l.id IS NULL AND w.id IS NULL AND j.final IS NULL`

// criteriaSQL is a condition on what stateJoins join, with the parameters that args
// returns. A pending task meets any stage here: pendingPlace decides on it.
const criteriaSQL = `($3::timestamptz IS NULL OR t.created_at >= $3) AND ($4::timestamptz IS NULL OR t.created_at < $4)
  AND ($5::text[] IS NULL OR ` + statusSQL + ` = ANY ($5))
  AND ($6 = '' OR $6 = coalesce(l.stage, w.stage, j.stage) OR ` + pendingSQL + `)
  AND ($7 = '' OR position(lower($7) IN lower(coalesce(j.error, ''))) > 0)
  AND ($8::timestamptz IS NULL OR j.at < $8)`

// args are the parameters $3 to $8.
func (c criteria) args() []any {
	return []any{orNull(c.since), orNull(c.until), c.statuses, c.stage, c.text, orNull(c.endedBefore)}
}
