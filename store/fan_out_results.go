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

// resultList is the context of the stage after a fan-out under way. If the outputs have more than
// MaxInlineResults bytes, it will have an address instead of them.
type resultList struct {
	o    *fanOut
	head []byte
	doc  []byte
	next int // index of the next result
	fits bool
}

func newResultList(o *fanOut) *resultList {
	head := fmt.Appendf(nil, `{"count":%d,"succeeded":%d,"failed":%d,"cancelled":%d,`, o.count,
		o.ended.succeeded, o.ended.failed, o.ended.cancelled)
	doc := append(head[:len(head):len(head)], `"results":[`...)
	return &resultList{o: o, head: head, doc: doc, fits: true}
}

// queue reads the outputs.
func (l *resultList) queue(b *pgx.Batch, t *Type) {
	for _, r := range l.o.runs(0, l.o.spawned) {
		if t.Has(r.position()) {
			b.Queue(t.at(r.position(), outputsSQL), t.number, r.first, r.last()).Query(
				func(rows pgx.Rows) error { return l.read(rows, r) })
		}
	}
}

// read reads the outputs of a run.
func (l *resultList) read(rows pgx.Rows, r run) error {
	for rows.Next() {
		if !l.fits {
			continue
		}
		raw := rows.RawValues()
		var id int64
		if err := rows.Scan(&id, nil); err != nil {
			return err
		}
		l.pad(r.index + int(id-r.first))
		output := raw[1]
		if output == nil {
			output = []byte("null")
		}
		l.doc = append(append(l.doc, output...), ',')
		l.next++
		l.fits = len(l.doc) <= asyncflow.MaxInlineResults
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
	if !l.fits {
		id := asyncflow.TaskID{Type: t.Name, Number: l.o.id}
		return append(l.head, `"results_url":"/v1/callbacks/`+id.String()+`/results?fan_out=`+
			strconv.Itoa(int(l.o.seq))+`"}`...)
	}
	l.pad(l.o.count)
	if l.doc[len(l.doc)-1] == ',' {
		l.doc = l.doc[:len(l.doc)-1]
	}
	return append(l.doc, "]}"...)
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
		rows, err := s.of(tenant).Query(ctx, t.at(r.position(), `
			SELECT id, final, CASE WHEN final = 'succeeded' THEN output END FROM {journal} j
			WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IS NOT NULL ORDER BY id, seq`), t.number,
			r.first, r.last())
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
			if size += len(one.Output); size > resultBytes {
				return errPageFull
			}
			return nil
		})
		if err == errPageFull {
			return results[:r.index+int(id-r.first)+1-from], o.count, nil
		}
		if err != nil {
			return nil, 0, wrap(err, "ChildResults(%q, %s)", tenant, parent)
		}
	}
	return results, o.count, nil
}

var errPageFull = fmt.Errorf("the page is full")
