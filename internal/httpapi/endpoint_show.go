package httpapi

import (
	"context"
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
