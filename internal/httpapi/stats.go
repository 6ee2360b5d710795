package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetStats counts the tasks of all of the tenant's types, or of one type.
func (s *Server) GetStats(
	ctx context.Context, r GetStatsRequestObject,
) (GetStatsResponseObject, error) {
	stats, err := s.cfg.Store.Stats(ctx, principalOf(ctx).Tenant, r.Params.Type)
	if err != nil {
		return nil, err
	}
	data := make([]api.Stats, len(stats))
	for i, t := range stats {
		data[i] = statsOut(t)
	}
	return GetStats200JSONResponse{Data: data}, nil
}

func statsOut(t store.Stats) api.Stats {
	var backlog []api.Backlog
	for _, b := range t.Backlog {
		backlog = append(backlog, api.Backlog{
			WaitsFor:     b.WaitsFor,
			WaitsBecause: b.Because,
			Stage:        b.Stage,
			Tasks:        b.Tasks,
			OldestDue:    b.Oldest,
		})
	}
	return api.Stats{
		Type:      t.Type,
		Paused:    t.Paused,
		Waiting:   t.Waiting,
		Pending:   t.Pending,
		Running:   t.Running,
		Succeeded: t.Succeeded,
		Failed:    t.Failed,
		Cancelled: t.Cancelled,
		OldestDue: t.OldestDue,
		Backlog:   backlog,
		Latency:   latencyOut(t.Latency),
		Rolls:     t.Rolls,
		Rates: api.Rates{
			Submitted: float32(t.Rates.Submitted),
			Attempts:  float32(t.Rates.Attempts),
			Failures:  float32(t.Rates.Failures),
			Finished:  float32(t.Rates.Finished),
		},
	}
}
