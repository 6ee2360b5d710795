package trees

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// childOutputsSQL reads the outputs of the succeeded children of one run, in their order, and the
// sum of their lengths up to there. It leaves out outputs that exceed a sum.
const childOutputsSQL = `
SELECT id, 'succeeded', sum, CASE WHEN sum <= $4 THEN output END FROM (
  SELECT id, output, sum(octet_length(output)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)
  FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3 AND final = 'succeeded') j
ORDER BY id`

// childResultsSQL reads how the ended children of one run ended, in their order: with their outputs
// or errors, and the sum of the lengths of these up to there. It leaves out results after a sum. A
// redriven child counts as running.
const childResultsSQL = `
SELECT id, final, sum, CASE WHEN sum - octet_length(text) <= $4 THEN text END FROM (
  SELECT id, final, text, sum(octet_length(text)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) FROM (
    SELECT id, final, CASE WHEN final = 'succeeded' THEN output ELSE error END AS text
    FROM {journal} j WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IS NOT NULL
      AND (final = 'succeeded' OR NOT EXISTS (
        SELECT FROM {journal} l WHERE l.type = j.type AND l.id = j.id AND l.seq > j.seq))) j) j
ORDER BY id`

// resultList is the context of the stage after a fan-out under way. If the results have more than
// MaxInlineResults bytes, it will have an address instead of them.
type resultList struct {
	o    *records.FanOut
	size int // bytes of the outputs, and of the errors if it has them
	doc  []byte
	next int // index of the next result
	// sorted has the results by their places, if they aren't read in that order.
	sorted []ChildResult
}

// queue reads the results. Children in rolls that were dropped have none.
func (l *resultList) queue(b *pgx.Batch, t *config.Type, types typesOf) {
	records.QueuePlaces(b, t, l.o)
	sql := childOutputsSQL
	if l.settled() {
		sql = childResultsSQL
	}
	for _, r := range l.o.Runs(0, l.o.Spawned) {
		if t := types.ofChildren(t, r); t != nil && t.Has(r.Position()) {
			b.Queue(t.SQL(r.Position(), sql), t.Number(), r.First, r.Last(),
				asyncflow.MaxInlineResults).
				Query(func(rows pgx.Rows) error { return l.read(rows, t, r) })
		}
	}
}

// settled reports whether each result says how the child ended.
func (l *resultList) settled() bool { return l.o.Rule.Results == asyncflow.ResultsSettled }

// read reads the results of a run.
func (l *resultList) read(rows pgx.Rows, t *config.Type, r records.ChildRun) error {
	before := l.size
	for rows.Next() {
		text := rows.RawValues()[3]
		var id int64
		var status asyncflow.Status
		var sum *int
		if err := rows.Scan(&id, &status, &sum, nil); err != nil {
			return err
		}
		if sum != nil {
			l.size = before + *sum
		}
		if l.long() {
			continue
		}
		index := r.Index + int(id-r.First)
		if l.o.Places != nil {
			l.sort(newChildResult(t, l.o.Place(index), id, status, bytes.Clone(text)))
			continue
		}
		l.pad(index)
		l.add(newChildResult(t, index, id, status, text))
	}
	return rows.Err()
}

// long reports whether the results are too long for the context.
func (l *resultList) long() bool { return max(l.size, len(l.doc)) > asyncflow.MaxInlineResults }

func (l *resultList) add(r ChildResult) {
	l.doc = append(r.append(l.doc, l.o.Rule.Results), ',')
	l.next++
}

// sort keeps a result until all are read.
func (l *resultList) sort(r ChildResult) {
	if l.sorted == nil {
		l.sorted = cancelledResults(0, l.o.Count)
	}
	l.sorted[r.Index] = r
}

// addSorted adds the results that were kept.
func (l *resultList) addSorted() {
	for _, r := range l.sorted {
		if l.long() {
			break
		}
		l.add(r)
	}
	l.sorted = nil
}

// cancelledResults returns the results of children that were never made, or are deleted.
func cancelledResults(from, to int) (all []ChildResult) {
	for i := from; i < to; i++ {
		all = append(all, ChildResult{Index: i, Status: asyncflow.StatusCancelled})
	}
	return all
}

// pad adds a result for each child without one before an index.
func (l *resultList) pad(to int) {
	for l.next < to {
		l.add(ChildResult{Index: l.next, Status: asyncflow.StatusCancelled})
	}
}

// context returns the context.
func (l *resultList) context(t *config.Type, publicURL string) json.RawMessage {
	o := l.o
	doc := fmt.Appendf(nil, `{"count":%d,"succeeded":%d,"failed":%d,"cancelled":%d,`, o.Count,
		o.Ended.Succeeded, o.Ended.Failed, o.Ended.Cancelled)
	l.addSorted()
	if !l.long() {
		l.pad(o.Count)
	}
	if l.long() {
		stored := asyncflow.StoredResults{Task: asyncflow.TaskID{Type: t.Name, Number: o.ID},
			FanOut: int(o.Seq)}
		return fmt.Appendf(doc, `"results_url":"%s"}`, stored.URL(publicURL))
	}
	results := bytes.TrimSuffix(l.doc, []byte(","))
	l.doc = nil // the context is a copy
	return fmt.Appendf(doc, `"results":[%s]}`, results)
}

// ChildResult is how a child ended, or where it stands.
type ChildResult struct {
	ID     asyncflow.TaskID // zero: it was never made, or is deleted
	Index  int
	Status asyncflow.Status
	Output json.RawMessage // nil unless it succeeded
	Error  string          // empty if it did
}

// newChildResult returns the result of a child that ended with an output or an error.
func newChildResult(
	t *config.Type, index int, id int64, status asyncflow.Status, text []byte,
) ChildResult {
	r := ChildResult{ID: asyncflow.TaskID{Type: t.Name, Number: id}, Index: index, Status: status}
	if status == asyncflow.StatusSucceeded {
		r.Output = text
	} else {
		r.Error = string(text)
	}
	return r
}

// append appends the result in a form, as JSON. Outputs are passed on byte by byte.
func (r ChildResult) append(doc []byte, form asyncflow.ResultsForm) []byte {
	if form != asyncflow.ResultsSettled {
		if r.Output == nil {
			return append(doc, "null"...)
		}
		return append(doc, r.Output...)
	}
	doc = fmt.Appendf(doc, `{"index":%d,"status":"%s"`, r.Index, r.Status)
	if r.ID.Number != 0 {
		doc = fmt.Appendf(doc, `,"id":"%s"`, r.ID)
	}
	if r.Output != nil {
		doc = append(append(doc, `,"output":`...), r.Output...)
	}
	if r.Error != "" {
		text, err := json.Marshal(r.Error)
		if err != nil {
			panic(err) // a string
		}
		doc = append(append(doc, `,"error":`...), text...)
	}
	return append(doc, '}')
}
