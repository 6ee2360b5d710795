package httpapi

import (
	"cmp"
	"context"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

const (
	defaultWorkersTime = 15 * time.Minute
	defaultWorkers     = 100
)

// ListWorkers lists the workers that run tasks now, or ended attempts lately.
func (s *Server) ListWorkers(
	ctx context.Context, r ListWorkersRequestObject,
) (ListWorkersResponseObject, error) {
	f := store.WorkerFilter{Type: r.Params.Type, Since: r.Params.Since,
		Limit: cmp.Or(r.Params.Limit, defaultWorkers)}
	if f.Since.IsZero() {
		f.Since = s.cfg.Store.Clock.Now().Add(-defaultWorkersTime)
	}
	report, err := s.cfg.Store.Workers(ctx, principalOf(ctx).Tenant, f)
	if err != nil {
		return nil, err
	}
	out := ListWorkers200JSONResponse{Since: f.Since, Count: report.Count,
		Workers:  make([]api.WorkerHealth, len(report.Workers)),
		Searched: api.WorkersSearched{Attempts: report.Attempts, Complete: report.Complete}}
	for i, w := range report.Workers {
		out.Workers[i] = workerOut(w)
	}
	return out, nil
}

// workerOut returns a worker as the API shows it.
func workerOut(w store.Worker) api.WorkerHealth {
	return api.WorkerHealth{Type: w.Type, Stage: w.Stage, Name: w.Name, URL: w.URL,
		Claimer: w.Claimer, State: api.WorkerHealthState(w.State), Running: w.Running,
		OldestRunning: w.Oldest, LastSeen: w.Seen, Attempts: w.Attempts, Failures: w.Failures,
		Lost:     w.Lost,
		Duration: api.WorkerDuration{P50Ms: milliseconds(w.P50), P95Ms: milliseconds(w.P95)}}
}
