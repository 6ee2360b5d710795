package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// childOutputsSQL reads the outputs of children of one run that have succeeded, in their order, and
// the sum of their lengths up to there. It leaves out those that exceed a sum.
const childOutputsSQL = `
SELECT id, sum, CASE WHEN sum <= $4 THEN output END FROM (
  SELECT id, output, sum(octet_length(output)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)
  FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3 AND final = 'succeeded') j
ORDER BY id`

// resultList is the context of the stage after a fan-out under way. If the outputs have more than
// MaxInlineResults bytes, it will have an address instead of them.
type resultList struct {
	o    *fanOut
	size int // bytes of the outputs
	doc  []byte
	next int // index of the next result
}

// queue reads the outputs. Children in rolls that were dropped have none.
func (l *resultList) queue(b *pgx.Batch, t *Type) {
	for _, r := range l.o.runs(0, l.o.spawned) {
		if t.Has(r.position()) {
			b.Queue(t.at(r.position(), childOutputsSQL), t.number, r.first, r.last(),
				asyncflow.MaxInlineResults).Query(func(rows pgx.Rows) error { return l.read(rows, r) })
		}
	}
}

// read reads the outputs of a run.
func (l *resultList) read(rows pgx.Rows, r run) error {
	before := l.size
	for rows.Next() {
		output := rows.RawValues()[2] // in text
		var id int64
		var sum *int
		if err := rows.Scan(&id, &sum, nil); err != nil {
			return err
		}
		if sum != nil {
			l.size = before + *sum
		}
		if l.size > asyncflow.MaxInlineResults {
			continue
		}
		if output == nil {
			output = []byte("null")
		}
		l.pad(r.index + int(id-r.first))
		l.doc = append(append(l.doc, output...), ',')
		l.next++
	}
	return rows.Err()
}

// pad adds a null for each child without a result before an index.
func (l *resultList) pad(to int) {
	for ; l.next < to; l.next++ {
		l.doc = append(l.doc, "null,"...)
	}
}

// context returns the context.
func (l *resultList) context(t *Type) json.RawMessage {
	o := l.o
	doc := fmt.Appendf(nil, `{"count":%d,"succeeded":%d,"failed":%d,"cancelled":%d,`, o.count,
		o.ended.succeeded, o.ended.failed, o.ended.cancelled)
	if l.size <= asyncflow.MaxInlineResults {
		l.pad(o.count)
	}
	if max(l.size, len(l.doc)) > asyncflow.MaxInlineResults {
		id := asyncflow.TaskID{Type: t.Name, Number: o.id}
		return fmt.Appendf(doc, `"results_url":"/v1/callbacks/%s/results?fan_out=%d"}`, id, o.seq)
	}
	results := bytes.TrimSuffix(l.doc, []byte(","))
	l.doc = nil // the context is a copy
	return fmt.Appendf(doc, `"results":[%s]}`, results)
}

// NoResults is the context of the stage after a fan-out of an empty list.
var NoResults = json.RawMessage(`{"count":0,"succeeded":0,"failed":0,"cancelled":0,"results":[]}`)

// ChildResult is the result of a child.
type ChildResult struct {
	ID     asyncflow.TaskID // zero: it was never made, or is deleted
	Index  int
	Status asyncflow.Status
	Output json.RawMessage // nil unless it succeeded
}

// resultBytes bounds the outputs of a page of results.
const resultBytes = 4 << 20

// ChildResults returns up to limit results of the children of a task, from an index on, and how
// many children there are. It returns fewer if their outputs are large. seq names the fan-out: see
// asyncflow.Child.
func (s *Store) ChildResults(
	ctx context.Context, tenant string, parent asyncflow.TaskID, seq, from, limit int,
) (results []ChildResult, count int, err error) {
	t, err := s.TypeOf(ctx, tenant, parent)
	if err != nil {
		return nil, 0, err
	}
	o, err := latestFanOut(ctx, s.of(tenant), t, parent.Number, seq, "")
	if err != nil {
		return nil, 0, wrap(err, "ChildResults(%q, %s)", tenant, parent)
	}
	if o == nil {
		return nil, 0, asyncflow.Errorf(asyncflow.CodeNotFound, "task %s has no fan-out %d", parent,
			seq)
	}
	to := min(from+limit, o.count)
	for i := from; i < to; i++ {
		results = append(results, ChildResult{Index: i, Status: asyncflow.StatusCancelled})
	}
	size := 0
	for _, r := range o.runs(from, to) {
		if r.position() < t.First { // dropped
			continue
		}
		for i := range r.n {
			one := &results[r.index+i-from]
			one.ID = asyncflow.TaskID{Type: t.Name, Number: r.first + int64(i)}
			one.Status = asyncflow.StatusPending
		}
		last, full, err := s.pageEnd(ctx, t, r, &size)
		if err != nil {
			return nil, 0, wrap(err, "ChildResults(%q, %s)", tenant, parent)
		}
		rows, err := s.of(tenant).Query(ctx, t.at(r.position(), `
			SELECT id, final, CASE WHEN final = 'succeeded' THEN output END FROM {journal} j
			WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IS NOT NULL ORDER BY id, seq`), t.number,
			r.first, last)
		if err != nil {
			return nil, 0, wrap(err, "ChildResults(%q, %s)", tenant, parent)
		}
		var id int64
		var final asyncflow.Status
		var output []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &final, &output}, func() error {
			one := &results[r.index+int(id-r.first)-from]
			one.Status, one.Output = final, output
			output = nil
			return nil
		})
		if err != nil {
			return nil, 0, wrap(err, "ChildResults(%q, %s)", tenant, parent)
		}
		if full {
			return results[:r.index+int(last-r.first)+1-from], o.count, nil
		}
	}
	return results, o.count, nil
}

// pageEnd returns the last child of a run whose output a page still takes, and reports whether the
// page is full then. size is what the page has, in bytes. It reads only the lengths of outputs.
func (s *Store) pageEnd(
	ctx context.Context, t *Type, r run, size *int,
) (last int64, full bool, err error) {
	rows, err := s.of(t.Tenant).Query(ctx, t.at(r.position(), `
		SELECT id, octet_length(output) FROM {journal}
		WHERE type = $1 AND id BETWEEN $2 AND $3 AND final = 'succeeded' AND output IS NOT NULL
		ORDER BY id`), t.number, r.first, r.last())
	if err != nil {
		return 0, false, err
	}
	last = r.last()
	var id int64
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		if *size += n; *size > resultBytes && !full {
			last, full = id, true
		}
		return nil
	})
	return last, full, err
}
