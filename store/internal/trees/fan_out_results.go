package trees

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
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

// resultBytes bounds the outputs and errors of a page of results.
const resultBytes = 4 << 20

// ChildResults returns up to limit results of the children of a task, from an index on, and how
// many children there are. It returns fewer if their outputs are large. seq names the fan-out: see
// asyncflow.Child.
func (s *Trees) ChildResults(
	ctx context.Context, tenant string, parent asyncflow.TaskID, seq, from, limit int,
) (results []ChildResult, count int, err error) {
	t, err := s.core.TypeOf(ctx, tenant, parent)
	if err != nil {
		return nil, 0, err
	}
	o, err := records.LatestFanOut(ctx, s.core.DB(tenant), t, parent.Number, seq, "")
	if err != nil {
		return nil, 0, postgres.Wrap(err, "ChildResults(%q, %s)", tenant, parent)
	}
	switch {
	case o == nil && seq == 0:
		return nil, 0, asyncflow.Errorf(asyncflow.CodeNotFound, "task %s has no children", parent)
	case o == nil:
		return nil, 0, asyncflow.Errorf(asyncflow.CodeNotFound, "task %s has no fan-out %d", parent,
			seq)
	}
	r := &resultReader{ctx: ctx, db: s.core.DB(tenant), t: t, o: o}
	if r.types, err = s.typesFor(ctx, tenant, o); err != nil {
		return nil, o.Count, postgres.Wrap(err, "ChildResults(%q, %s)", tenant, parent)
	}
	results, err = r.read(from, limit, resultBytes)
	return results, o.Count, postgres.Wrap(err, "ChildResults(%q, %s)", tenant, parent)
}

// typesFor returns a tenant's types, with those of the children of a fan-out that exist: this node
// may not have known a new one.
func (s *Trees) typesFor(
	ctx context.Context, tenant string, o *records.FanOut,
) (typesOf, error) {
	all := typesOf{}
	for fresh := false; ; fresh = true {
		for _, t := range s.core.Catalog.TypesOf(tenant) {
			all[t.Number()] = t
		}
		unknown := func(number int32) bool { return number != 0 && all[number] == nil }
		if fresh || !slices.ContainsFunc(o.Types, unknown) {
			return all, nil
		}
		if err := s.core.Catalog.RefreshTenant(ctx, tenant); err != nil {
			return nil, err
		}
	}
}

// ChildCount returns how many children the fan-out of stored results has; 0: there is none.
func (s *Trees) ChildCount(
	ctx context.Context, t *config.Type, stored asyncflow.StoredResults,
) (count int, err error) {
	o, err := records.LatestFanOut(ctx, s.core.DB(t.Tenant), t, stored.Task.Number,
		stored.FanOut, "")
	if err != nil || o == nil {
		return 0, postgres.Wrap(err, "ChildCount(%s, %d)", stored.Task, stored.FanOut)
	}
	return o.Count, nil
}

// ChildrenOfVisits returns how many children a task has made in its visits of stages that fan out,
// since it was submitted or redriven last.
func (s *Trees) ChildrenOfVisits(
	ctx context.Context, t *config.Type, id asyncflow.TaskID,
) (count int, err error) {
	err = s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(id.Position(), `
		SELECT coalesce(sum(count), 0) FROM {fan_outs} WHERE type = $1 AND id = $2
		  AND seq > coalesce((SELECT max(seq) FROM {journal}
		    WHERE type = $1 AND id = $2 AND final <> 'succeeded'), -1)`), t.Number(), id.Number).
		Scan(&count)
	return count, postgres.Wrap(err, "ChildrenOfVisits(%s)", id)
}

// IsVote reports whether the children of a task are votes. seq names the fan-out; 0: the latest
// one.
func (s *Trees) IsVote(
	ctx context.Context, t *config.Type, parent asyncflow.TaskID, seq int,
) (bool, error) {
	o, err := records.LatestFanOut(ctx, s.core.DB(t.Tenant), t, parent.Number, seq, "")
	if err != nil || o == nil {
		return false, postgres.Wrap(err, "IsVote(%s, %d)", parent, seq)
	}
	return o.Rule.Quorum != nil, nil
}

// resultReader reads the results of a fan-out.
type resultReader struct {
	ctx   context.Context
	db    postgres.Querier
	t     *config.Type
	types typesOf
	o     *records.FanOut
}

// read returns up to limit results, from an index on. The last one is the first with which they
// have more than a number of bytes.
func (r *resultReader) read(from, limit, most int) (results []ChildResult, err error) {
	if err := records.ReadPlaces(r.ctx, r.db, r.t, r.o); err != nil {
		return nil, err
	}
	to := max(from, min(from+limit, r.o.Count))
	if r.o.Places == nil {
		results, _, err = r.readSlots(from, to, most)
		return results, err
	}
	for {
		results, full, err := r.readPlaces(from, to, most)
		if err != nil || !full || to == from+1 {
			return results, err
		}
		to = from + (to-from)/2
	}
}

// readPlaces returns the results from a place to before another one, and whether they have more
// than a number of bytes. Then some are missing.
func (r *resultReader) readPlaces(
	from, to, most int,
) (results []ChildResult, full bool, err error) {
	results = cancelledResults(from, to)
	var slots []int
	for slot, place := range r.o.Places {
		if int(place) >= from && int(place) < to {
			slots = append(slots, slot)
		}
	}
	for len(slots) > 0 && !full {
		n := 1
		for n < len(slots) && slots[n] == slots[0]+n {
			n++
		}
		part, size, err := r.readSlots(slots[0], slots[0]+n, most)
		if err != nil {
			return nil, false, err
		}
		for _, one := range part {
			one.Index = r.o.Place(one.Index)
			results[one.Index-from] = one
		}
		most -= size
		full = most < 0
		slots = slots[n:]
	}
	return results, full, nil
}

// readSlots returns the results from a slot to before another one, and their bytes. The last result
// is the first with which they have more than a number of bytes.
func (r *resultReader) readSlots(
	from, to, most int,
) (results []ChildResult, bytes int, err error) {
	results = cancelledResults(from, to)
	for _, run := range r.o.Runs(from, min(to, r.o.Spawned)) {
		t := r.types.ofChildren(r.t, run)
		if t == nil || run.Position() < t.First { // dropped
			continue
		}
		for i := range run.N {
			one := &results[run.Index+i-from]
			one.ID = asyncflow.TaskID{Type: t.Name, Number: run.First + int64(i)}
			one.Status = asyncflow.StatusPending
		}
		last, size, err := readRun(r.ctx, r.db, t, run, most, results[run.Index-from:])
		if err != nil {
			return nil, 0, err
		}
		bytes += size
		if most -= size; most < 0 {
			return results[:last+1-from], bytes, nil
		}
	}
	return results, bytes, nil
}

// readRun reads the results of a run, and returns the index of the last one that a number of bytes
// takes, and the bytes up to there.
func readRun(
	ctx context.Context, db postgres.Querier, t *config.Type, r records.ChildRun, most int,
	into []ChildResult,
) (last, size int, err error) {
	rows, err := db.Query(ctx, t.SQL(r.Position(), childResultsSQL), t.Number(), r.First, r.Last(),
		most)
	if err != nil {
		return 0, 0, err
	}
	last = r.Index + r.N - 1
	var id int64
	var status asyncflow.Status
	var sum *int
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &sum, nil}, func() error {
		if size > most {
			return nil
		}
		i := int(id - r.First)
		into[i] = newChildResult(t, r.Index+i, id, status, bytes.Clone(rows.RawValues()[3]))
		if sum != nil {
			size = *sum
		}
		if size > most {
			last = r.Index + i
		}
		return nil
	})
	return last, size, err
}
