package httpapi

import (
	"context"
	"math"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// endpointAnswer returns the document of an endpoint of the caller's tenant, without its secrets,
// and sets its ETag. An error of the call that returned the endpoint is passed on.
func (s *Server) endpointAnswer(
	ctx context.Context, e asyncflow.Endpoint, err error,
) (api.Endpoint, error) {
	if err != nil {
		return api.Endpoint{}, err
	}
	setETag(ctx, store.EndpointETag(e))
	all, err := s.endpointsOut(ctx, []asyncflow.Endpoint{e})
	if err != nil {
		return api.Endpoint{}, err
	}
	return all[0], nil
}

func (s *Server) endpointsOut(
	ctx context.Context, endpoints []asyncflow.Endpoint,
) ([]api.Endpoint, error) {
	now := s.cfg.Store.Clock.Now()
	ids := make([]string, len(endpoints))
	for i, e := range endpoints {
		ids[i] = e.ID
	}
	counted, err := s.cfg.Store.EndpointCounts(ctx, principalOf(ctx).Tenant, ids,
		now.Add(-asyncflow.FailureWindow))
	if err != nil {
		return nil, err
	}
	out := make([]api.Endpoint, len(endpoints))
	for i, e := range endpoints {
		if out[i], err = s.endpointDocument(e, counted[e.ID], now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Server) endpointDocument(
	e asyncflow.Endpoint, counted store.EndpointCounts, now time.Time,
) (api.Endpoint, error) {
	o, err := s.cfg.Keys.OpenOutbound(e)
	if err != nil {
		return api.Endpoint{}, err
	}
	o = o.Masked()
	out := api.Endpoint{
		ID:                  e.ID,
		Type:                e.Type,
		Stage:               e.Stage,
		URL:                 e.URL,
		Weight:              e.Weight,
		MaxInFlight:         e.Limits.MaxInFlight,
		Rate:                e.Limits.Rate,
		Batch:               e.Batch,
		Health:              healthOut(e.Health, counted, now),
		Secrets:             secretsOut(e, now),
		OldSecretSignsUntil: e.OldSecretSignsUntil(now),
		Headers:             o.Headers,
		Auth:                o.Auth,
		TLS:                 o.TLS,
		Verification:        verificationOf(e),
		VerifiedAt:          e.VerifiedAt,
		VerificationError:   e.VerificationError,
		CreatedAt:           e.CreatedAt,
		UpdatedAt:           e.UpdatedAt,
	}
	if e.Listens() {
		out.URL, out.Listen = "", true
	}
	return out, nil
}

func healthOut(h asyncflow.Health, counted store.EndpointCounts, now time.Time) api.EndpointHealth {
	out := api.EndpointHealth{
		State:    h.At(now),
		Since:    h.Since,
		Reason:   h.Reason,
		Attempts: counted.Attempts,
		Failures: counted.Failures,
		Codes:    codesOut(counted),
		Latency:  latencyOut(counted.Latencies.Summary()),
	}
	switch out.State {
	case asyncflow.HealthOpen:
		out.Until = h.Until
	case asyncflow.HealthHalfOpen:
		out.Since = h.Until
	}
	return out
}

func secretsOut(e asyncflow.Endpoint, now time.Time) []api.EndpointSecret {
	active := e.ActiveSecrets(now)
	out := make([]api.EndpointSecret, len(active))
	for i, s := range active {
		out[i] = api.EndpointSecret{
			ID:        s.ID,
			Kind:      s.Kind,
			PublicKey: s.PublicKey,
			CreatedAt: s.CreatedAt,
			ExpiresAt: s.ExpiresAt,
		}
	}
	return out
}

func verificationOf(e asyncflow.Endpoint) api.EndpointVerification {
	switch {
	case !e.VerifiedAt.IsZero():
		return api.Verified
	case e.Challenged:
		return api.Unverified
	}
	return api.Unneeded
}

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

// waitOf shows how long a task was due; nil: it isn't known.
func waitOf(d time.Duration) *float32 {
	if d < 0 {
		return nil
	}
	wait := milliseconds(d)
	return &wait
}
