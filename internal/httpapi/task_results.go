package httpapi

import (
	"cmp"
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// maxResults is the most results of children on one page.
const maxResults = 1000

// ListResults returns a page of the results of a task's children.
func (s *Server) ListResults(
	ctx context.Context, r ListResultsRequestObject,
) (ListResultsResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err == nil && completionOf(ctx).Tenant != "" {
		err = s.checkDelivery(ctx, id, r.Params.FanOut)
	}
	if err != nil {
		return nil, err
	}
	p := r.Params
	results, count, err := s.cfg.Store.ChildResults(ctx, tenantOf(ctx), id, p.FanOut, p.From,
		cmp.Or(p.Limit, maxResults))
	if err != nil {
		return nil, err
	}
	out := ListResults200JSONResponse{Count: count, Results: make([]api.ChildResult, len(results))}
	for i, one := range results {
		out.Results[i] = api.ChildResult{Index: one.Index, Status: one.Status, Output: one.Output,
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

// checkDelivery checks whether the token of a delivery opens the results of a task: CodeConflict if
// its attempt is over, CodeForbidden unless the delivery's context may come from these results.
// They must be of its own task, of the parent, or of a task on which one of these two depends. A
// vote is cast without knowing the other votes, so it opens none of its parent's.
func (s *Server) checkDelivery(ctx context.Context, id asyncflow.TaskID, fanOut int) error {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return err
	}
	l, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
	if err == nil && !stands {
		err = s.ended(ctx, a)
	}
	if err != nil {
		return err
	}
	family := []asyncflow.TaskID{a.Task}
	if c := l.Options.Child; c != nil {
		parent := asyncflow.TaskID{Type: a.Task.Type, Number: c.Parent}
		if c.Vote && parent == id {
			return s.checkVoter(ctx, a, id, fanOut)
		}
		family = append(family, parent)
	}
	for _, one := range family {
		may := one == id
		if !may {
			may, err = s.cfg.Store.DependsOn(ctx, a.Tenant, one, id)
		}
		if may || err != nil {
			return err
		}
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden,
		"the delivery is of task %s, which is no child "+
			"of task %s and doesn't depend on it", a.Task, id)
}

// checkVoter refuses the delivery of a vote if a fan-out of its parent is a vote, too.
func (s *Server) checkVoter(
	ctx context.Context, a attempt, parent asyncflow.TaskID, fanOut int,
) error {
	votes, err := s.cfg.Store.IsVote(ctx, a.taskType, parent, fanOut)
	if err != nil || !votes {
		return err
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "the delivery is of %s, a vote on task %s: "+
		"a vote can't read the other votes", a.Task, parent)
}

// ListVotes lists the votes on a task.
func (s *Server) ListVotes(
	ctx context.Context, r ListVotesRequestObject,
) (ListVotesResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	v, err := s.cfg.Store.Votes(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	out := ListVotes200JSONResponse{Decided: v.Outcome != nil, Over: v.Over,
		Outcome: v.Outcome, Data: []api.Vote{}}
	for _, vote := range v.Cast {
		one := voteOut(vote)
		one.TaskID = vote.Task.String()
		out.Data = append(out.Data, one)
	}
	for _, vote := range v.Late {
		one := voteOut(vote)
		one.Late = true
		out.Data = append(out.Data, one)
	}
	return out, nil
}

func voteOut(v asyncflow.Vote) api.Vote {
	return api.Vote{Claimer: v.Claimer, Subject: v.Subject, Status: v.Status, Outcome: v.Outcome,
		At: v.At}
}
