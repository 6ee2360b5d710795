package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// VerifyEndpoint challenges an endpoint. One for listening needs no challenge: it stays as it is.
func (s *Server) VerifyEndpoint(
	ctx context.Context, r VerifyEndpointRequestObject,
) (VerifyEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	e, err := s.cfg.Store.Endpoint(ctx, tenant, id)
	if err == nil && !e.Listens() {
		e, err = s.challenge(ctx, tenant, e)
	}
	out, err := s.endpointAnswer(ctx, e, err)
	return VerifyEndpoint200JSONResponse(out), err
}

// challenge challenges an endpoint, and returns the endpoint with the result.
func (s *Server) challenge(
	ctx context.Context, tenant string, e asyncflow.Endpoint,
) (asyncflow.Endpoint, error) {
	var failure string
	if err := s.cfg.Sender.Challenge(ctx, tenant, e, s.cfg.Store.Clock.Now()); err != nil {
		failure = err.Error()
	}
	return s.cfg.Store.ChangeEndpoint(ctx, tenant, e.ID, func(now *asyncflow.Endpoint) error {
		now.Judge(e.URL, failure, s.cfg.Store.Clock.Now(), s.cfg.VerifyEndpoints)
		return nil
	})
}
