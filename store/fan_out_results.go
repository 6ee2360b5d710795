package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// outputsSQL reads the outputs of children of one run that have succeeded, in their order.
const outputsSQL = `SELECT id, output FROM {journal}
	WHERE type = $1 AND id BETWEEN $2 AND $3 AND final = 'succeeded' ORDER BY id`

// results returns the context of the next stage. If the outputs have more than MaxInlineResults
// bytes, it has an address instead of them.
func (f *followUp) results(t *Type, o *fanOut) (json.RawMessage, error) {
	fits, err := f.resultsFit(t, o)
	if err != nil {
		return nil, err
	}
	head := fmt.Appendf(nil, `{"count":%d,"succeeded":%d,"failed":%d,"cancelled":%d,`, o.count,
		o.ended.succeeded, o.ended.failed, o.ended.cancelled)
	doc := append(head[:len(head):len(head)], `"results":[`...)
	next := 0 // index of the next result
	pad := func(to int) {
		for ; next < to; next++ {
			doc = append(doc, "null,"...)
		}
	}
	for _, r := range o.runs(0, o.spawned) {
		if !fits {
			break
		}
		if !t.Has(r.position()) {
			continue
		}
		rows, err := f.tx.Query(f.ctx, t.at(r.position(), outputsSQL), t.number, r.first, r.last())
		if err != nil {
			return nil, err
		}
		for fits && rows.Next() {
			raw := rows.RawValues()
			var id int64
			if err := rows.Scan(&id, nil); err != nil {
				return nil, err
			}
			pad(r.index + int(id-r.first))
			output := raw[1]
			if output == nil {
				output = []byte("null")
			}
			doc = append(append(doc, output...), ',')
			next++
			fits = len(doc) <= asyncflow.MaxInlineResults
		}
		rows.Close()
		if err := rows.Err(); err != nil && fits {
			return nil, err
		}
	}
	pad(o.count)
	if !fits || len(doc) > asyncflow.MaxInlineResults {
		id := asyncflow.TaskID{Type: t.Name, Number: o.id}
		return append(head, `"results_url":"/v1/callbacks/`+id.String()+`/results?fan_out=`+
			strconv.Itoa(int(o.seq))+`"}`...), nil
	}
	if doc[len(doc)-1] == ',' {
		doc = doc[:len(doc)-1]
	}
	return append(doc, "]}"...), nil
}

// resultsFit reports whether the outputs of children have no more than MaxInlineResults bytes. It
// reads only their lengths.
func (f *followUp) resultsFit(t *Type, o *fanOut) (bool, error) {
	sum := 0
	for _, r := range o.runs(0, o.spawned) {
		if !t.Has(r.position()) {
			continue
		}
		var n int
		err := f.tx.QueryRow(f.ctx, t.at(r.position(), `SELECT coalesce(sum(octet_length(output)), 0)
			FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3 AND final = 'succeeded'`), t.number,
			r.first, r.last()).Scan(&n)
		if err != nil {
			return false, err
		}
		if sum += n; sum > asyncflow.MaxInlineResults {
			return false, nil
		}
	}
	return true, nil
}

// NoResults is the context of the stage after a fan-out of an empty list.
var NoResults = json.RawMessage(`{"count":0,"succeeded":0,"failed":0,"cancelled":0,"results":[]}`)

// ChildResult is the result of a child.
type ChildResult struct {
	ID     asyncflow.TaskID // zero: it was never made
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
		return nil, 0, asyncflow.Errorf(asyncflow.CodeNotFound, "task %s has no fan-out %d", parent, seq)
	}
	to := min(from+limit, o.count)
	for i := from; i < to; i++ {
		results = append(results, ChildResult{Index: i, Status: asyncflow.StatusCancelled})
	}
	size := 0
	for _, r := range o.runs(from, to) {
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
