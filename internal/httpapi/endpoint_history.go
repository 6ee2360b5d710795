package httpapi

import (
	"context"
	"math"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetEndpointHistory returns the last hour of an endpoint.
func (s *Server) GetEndpointHistory(
	ctx context.Context, r GetEndpointHistoryRequestObject,
) (GetEndpointHistoryResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	h, err := s.cfg.Store.EndpointHistory(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	out := GetEndpointHistory200JSONResponse{
		Minutes:  make([]api.EndpointMinute, len(h.Minutes)),
		States:   statesOut(h.Changes, s.cfg.Store.Clock.Now()),
		InFlight: h.InFlight,
	}
	for i, m := range h.Minutes {
		out.Minutes[i] = api.EndpointMinute{
			At:       m.At,
			Attempts: m.Attempts,
			Failures: m.Failures,
			Codes:    codesOut(m.EndpointCounts),
			Latency:  latencyOut(m.Latencies.Summary()),
		}
	}
	return out, nil
}

// statesOut returns the states that changes of health led to, the latest first. An endpoint that
// was open for its time was half-open until the next change.
func statesOut(changes []asyncflow.Health, now time.Time) []api.EndpointState {
	out := make([]api.EndpointState, 0, len(changes))
	end := now
	for i := len(changes) - 1; i >= 0; i-- {
		h := changes[i]
		if h.State == asyncflow.HealthOpen && h.Until.Before(end) {
			out = append(out, api.EndpointState{State: asyncflow.HealthHalfOpen, Since: h.Until})
		}
		state := api.EndpointState{State: h.State, Since: h.Since, Until: h.Until}
		if h.State != asyncflow.HealthClosed { // then it is the reason of the opening before
			state.Reason = h.Reason
		}
		out = append(out, state)
		end = h.Since
	}
	return out
}

func codesOut(c store.EndpointCounts) api.FailureCodes {
	out := api.FailureCodes{}
	for code, n := range c.Codes {
		if n > 0 {
			out[asyncflow.FailureCode(code).String()] = n
		}
	}
	return out
}

func latencyOut(l asyncflow.Latency) api.Latency {
	return api.Latency{P50Ms: milliseconds(l.P50), P99Ms: milliseconds(l.P99)}
}

// milliseconds rounds to a tenth.
func milliseconds(d time.Duration) float32 {
	return float32(math.Round(d.Seconds()*1e4) / 10)
}
