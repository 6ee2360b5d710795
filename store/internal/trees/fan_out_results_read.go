package trees

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

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
		results, _, err = r.readRanks(from, to, most)
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
	var ranks []int
	for rank, place := range r.o.Places {
		if int(place) >= from && int(place) < to {
			ranks = append(ranks, rank)
		}
	}
	for len(ranks) > 0 && !full {
		n := 1
		for n < len(ranks) && ranks[n] == ranks[0]+n {
			n++
		}
		part, size, err := r.readRanks(ranks[0], ranks[0]+n, most)
		if err != nil {
			return nil, false, err
		}
		for _, one := range part {
			one.Index = r.o.Place(one.Index)
			results[one.Index-from] = one
		}
		most -= size
		full = most < 0
		ranks = ranks[n:]
	}
	return results, full, nil
}

// readRanks returns the results from a rank to before another one, and their bytes. The last result
// is the first with which they have more than a number of bytes.
func (r *resultReader) readRanks(
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

// readRun reads the results of a run, and returns the index of the last one that fits in a number
// of bytes, and the bytes up to there.
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
