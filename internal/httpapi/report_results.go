package httpapi

import (
	"cmp"
	"context"

	. "github.com/asyncflow/asyncflow/client/api"
)

// maxResults is the most results of children on one page.
const maxResults = 1000

// ListResults returns a page of the results of the children whose task is being delivered.
func (s *Server) ListResults(
	ctx context.Context, r ListResultsRequestObject,
) (ListResultsResponseObject, error) {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return nil, err
	}
	_, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
	if err == nil && !stands {
		err = s.ended(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	p := r.Params
	results, count, err := s.cfg.Store.ChildResults(ctx, a.Tenant, a.Task, p.FanOut, p.From,
		cmp.Or(p.Limit, maxResults))
	if err != nil {
		return nil, err
	}
	out := ListResults200JSONResponse{Count: count, Results: make([]ChildResult, len(results))}
	for i, one := range results {
		out.Results[i] = ChildResult{Index: one.Index, Status: one.Status, Output: one.Output,
			Error: one.Error}
		if one.ID.Number != 0 {
			out.Results[i].ID = one.ID.String()
		}
	}
	if next := p.From + len(results); next < count {
		out.Next = next
	}
	return out, nil
}
