package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/store"
)

// GetGovernance returns the nodes and the background jobs, which belong to no tenant.
func (s *Server) GetGovernance(
	ctx context.Context, _ GetGovernanceRequestObject,
) (GetGovernanceResponseObject, error) {
	status, err := governance.ReadStatus(ctx, s.cfg.Store)
	return GetGovernance200JSONResponse(GovernanceOut(status)), err
}

// GovernanceOut returns the document of the nodes and the background jobs.
func GovernanceOut(status governance.Status) api.Governance {
	out := api.Governance{Jobs: make([]api.Job, len(status.Jobs)),
		Nodes: make([]api.Node, len(status.Nodes))}
	for i, j := range status.Jobs {
		out.Jobs[i] = jobOut(j)
	}
	for i, n := range status.Nodes {
		out.Nodes[i] = nodeOut(n)
	}
	return out
}

func jobOut(j governance.JobStatus) api.Job {
	out := api.Job{
		Name:        j.Name,
		Schedule:    j.Spec,
		Outcome:     api.JobOutcomeOk,
		Node:        j.Node,
		StartedAt:   j.Started,
		DurationMs:  float32(j.Duration.Microseconds()) / 1000,
		Rows:        int64(j.Rows),
		Error:       j.Error,
		Failures:    j.Failures,
		SucceededAt: j.Succeeded,
		NextAt:      j.Next,
	}
	switch {
	case j.Started.IsZero():
		out.Outcome = api.JobOutcomeNever
	case j.Error != "":
		out.Outcome = api.JobOutcomeFailed
	}
	return out
}

// GetNodeCounts returns what a tenant may know of the nodes: not their names.
func (s *Server) GetNodeCounts(
	ctx context.Context, _ GetNodeCountsRequestObject,
) (GetNodeCountsResponseObject, error) {
	nodes, err := s.cfg.Store.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := api.NodeCounts{Versions: []string{}}
	for _, n := range nodes {
		if n.Gone {
			out.Gone++
			continue
		}
		out.Alive++
		out.Versions = append(out.Versions, n.Version)
		for role := range strings.SplitSeq(n.Roles, ",") {
			switch role {
			case "api":
				out.Roles.API++
			case "dispatcher":
				out.Roles.Dispatcher++
			case "governance":
				out.Roles.Governance++
			}
		}
	}
	slices.Sort(out.Versions)
	out.Versions = slices.Compact(out.Versions)
	return GetNodeCounts200JSONResponse(out), nil
}

func nodeOut(n store.Node) api.Node {
	out := api.Node{
		ID:        n.ID,
		Roles:     strings.Split(n.Roles, ","),
		Version:   n.Version,
		StartedAt: n.Started,
		SeenAt:    n.Seen,
		State:     api.StateAlive,
	}
	if n.Gone {
		out.State = api.StateGone
	}
	return out
}
