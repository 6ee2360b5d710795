package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

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
