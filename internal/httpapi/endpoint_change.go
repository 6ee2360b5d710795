package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// UpdateEndpoint changes an endpoint. If that changes its URL, it is challenged, unless challenges
// are off.
func (s *Server) UpdateEndpoint(
	ctx context.Context, r UpdateEndpointRequestObject,
) (UpdateEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	var before string
	change := func(e *asyncflow.Endpoint) error {
		before = e.URL
		return s.patchEndpoint(e, *r.Body)
	}
	e, err := s.cfg.Store.ChangeEndpoint(withPrecondition(ctx), tenant, id, change)
	if err == nil && e.URL != before && s.cfg.VerifyEndpoints {
		e, err = s.challenge(ctx, tenant, e)
	}
	out, err := s.endpointAnswer(ctx, e, err)
	return UpdateEndpoint200JSONResponse(out), err
}

func (s *Server) patchEndpoint(e *asyncflow.Endpoint, p api.EndpointPatch) error {
	o, err := s.cfg.Keys.OpenOutbound(*e)
	if err != nil {
		return err
	}
	before := *e
	if p.URL != nil && e.Listens() {
		return asyncflow.InvalidField("url", "can't be set: the endpoint is for listening")
	}
	if p.URL != nil && *p.URL != e.URL {
		e.MoveTo(*p.URL, s.cfg.VerifyEndpoints)
		e.AllowDuplicate = p.AllowDuplicate
	}
	if p.Weight != nil {
		e.Weight = *p.Weight
	}
	egress := s.cfg.Egress
	if p.URL == nil && p.Auth == nil {
		// What was allowed once may stay: each delivery is checked against the present policy.
		egress = asyncflow.Anywhere
	}
	if p.Batch != nil {
		e.Batch = *p.Batch
	}
	if err := setLimits(e, p); err != nil {
		return err
	}
	if e.Listens() && before.Listens() {
		err = e.ValidateListens()
	} else {
		err = e.Validate(egress)
	}
	if err != nil {
		return err
	}
	if err = staysPrivate(before.URL, e.URL, o, p); err != nil {
		return err
	}
	if p.Headers != nil {
		o.Headers = *p.Headers
	}
	if p.Auth != nil {
		o.Auth = *p.Auth
	}
	if p.TLS != nil {
		o.TLS = *p.TLS
	}
	return s.setOutbound(e, o, egress)
}

func setLimits(e *asyncflow.Endpoint, p api.EndpointPatch) error {
	if p.MaxInFlight != nil {
		e.Limits.MaxInFlight = *p.MaxInFlight
	}
	if p.Rate == nil {
		return nil
	}
	e.Limits.Rate = asyncflow.Rate{}
	if *p.Rate == "" {
		return nil
	}
	if err := e.Limits.Rate.UnmarshalText([]byte(*p.Rate)); err != nil {
		return asyncflow.InvalidField("rate", "%v", err)
	}
	return nil
}

// staysPrivate refuses a URL of another origin if the endpoint keeps headers or credentials that
// were given for the old origin. A caller could otherwise send them to a place of its own.
func staysPrivate(before, after string, o asyncflow.Outbound, p api.EndpointPatch) error {
	keeps := len(o.Headers) > 0 && p.Headers == nil || o.Auth.Kind != "" && p.Auth == nil
	if keeps && !asyncflow.SameOrigin(before, after) {
		return asyncflow.InvalidField("url",
			"has another scheme, host or port: give headers and auth again, or take them away")
	}
	return nil
}

// setOutbound checks and seals the headers, credentials and TLS settings of an endpoint.
func (s *Server) setOutbound(
	e *asyncflow.Endpoint, o asyncflow.Outbound, egress asyncflow.Egress,
) error {
	if err := o.Validate(e.URL, egress); err != nil {
		return err
	}
	sealed, err := s.cfg.Keys.SealOutbound(o, e.ID)
	e.Outbound = sealed
	return err
}

// EnableEndpoint closes the circuit breaker of an endpoint.
func (s *Server) EnableEndpoint(
	ctx context.Context, r EnableEndpointRequestObject,
) (EnableEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	e, was, err := s.cfg.Store.EnableEndpoint(ctx, p.Tenant, id)
	if err != nil {
		return nil, err
	}
	if was != asyncflow.HealthClosed {
		s.log.Info("endpoint enabled", "tenant", p.Tenant, "endpoint", e.ID,
			"by", p.Subject, "was", string(was))
	}
	out, err := s.endpointAnswer(ctx, e, nil)
	return EnableEndpoint200JSONResponse(out), err
}
