package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/store"
)

// CreateEndpoint registers an endpoint, and challenges it unless that is off. Its
// secret is in the answer to this call and nowhere else.
func (s *Server) CreateEndpoint(ctx context.Context, r CreateEndpointRequestObject) (CreateEndpointResponseObject, error) {
	e := asyncflow.Endpoint{ID: uuid.Must(uuid.NewV7()).String(), Type: r.Body.Type, Stage: r.Body.Stage, URL: r.Body.URL,
		Weight: asyncflow.DefaultWeight, Challenged: s.cfg.VerifyEndpoints,
		AllowDuplicate: r.Body.AllowDuplicate}
	if r.Body.Weight != nil {
		e.Weight = *r.Body.Weight
	}
	e.Limits, e.Batch = asyncflow.Limits{MaxInFlight: r.Body.MaxInFlight, Rate: r.Body.Rate}, r.Body.Batch
	if err := e.Validate(s.cfg.Egress); err != nil {
		return nil, err
	}
	o := asyncflow.Outbound{Headers: r.Body.Headers, Auth: r.Body.Auth, TLS: r.Body.TLS}
	if err := s.setOutbound(&e, o, s.cfg.Egress); err != nil {
		return nil, err
	}
	secret, kept, err := s.newSecret(e.ID, r.Body.Secret, r.Body.SecretKind, "secret_kind")
	if err != nil {
		return nil, err
	}
	e.Secrets = []asyncflow.SigningSecret{kept}
	tenant := principalOf(ctx).Tenant
	store.ActOf(ctx).About(e.ID)
	store.ActOf(ctx).Note("type", e.Type)
	store.ActOf(ctx).Note("stage", e.Stage)
	stored, err := s.cfg.Store.CreateEndpoint(ctx, tenant, e)
	if err == nil && s.cfg.VerifyEndpoints {
		stored, err = s.challenge(ctx, tenant, stored)
	}
	if err != nil {
		return nil, err
	}
	out, err := s.endpointOut(ctx, stored)
	out.Secret = secret
	return CreateEndpoint201JSONResponse(out), err
}

// newSecret returns a signing secret as it is shown and as it is kept: the one that is
// given, or one of a kind that is made. A private key is never shown.
func (s *Server) newSecret(endpoint, given string, kind asyncflow.SecretKind, field string) (shown string, kept asyncflow.SigningSecret, err error) {
	secret := given
	if secret == "" {
		if secret, err = signing.NewSecretOf(kind); err != nil {
			return "", kept, err
		}
	}
	if kept, err = s.cfg.Keys.SigningSecret(secret, endpoint, s.cfg.Store.Clock.Now()); err != nil {
		return "", kept, err
	}
	if kind != "" && kind != kept.Kind {
		return "", kept, asyncflow.InvalidField(field, "is %s, but the secret is of the kind %s", kind, kept.Kind)
	}
	if kept.Kind != asyncflow.SecretHMAC {
		return "", kept, nil
	}
	return secret, kept, nil
}

// ListEndpoints lists a page of the tenant's endpoints.
func (s *Server) ListEndpoints(ctx context.Context, r ListEndpointsRequestObject) (ListEndpointsResponseObject, error) {
	after, err := readEndpointCursor(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	page, more, err := s.cfg.Store.EndpointPage(ctx, principalOf(ctx).Tenant, r.Params.Type, after,
		pageLimit(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	var out ListEndpoints200JSONResponse
	if more {
		last := store.PlaceOf(page[len(page)-1])
		key := append([]string{last.Type, last.Stage}, placeKey(last.Place)...)
		out.NextCursor = writeKeyCursor(true, key...)
	}
	out.Data, err = s.endpointsOut(ctx, page)
	return out, err
}

func readEndpointCursor(cursor string) (after store.EndpointPlace, err error) {
	key, err := readKeyCursor(cursor, 4)
	if err != nil {
		return after, err
	}
	after.Type, after.Stage = key[0], key[1]
	if cursor != "" && (asyncflow.CheckName(key[0]) != nil || asyncflow.CheckName(key[1]) != nil) {
		return after, badCursor()
	}
	after.Place, err = readPlace(key[2], key[3])
	return after, err
}

// GetEndpoint returns one endpoint.
func (s *Server) GetEndpoint(ctx context.Context, r GetEndpointRequestObject) (GetEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	e, err := s.cfg.Store.Endpoint(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	out, err := s.endpointOut(ctx, e)
	return GetEndpoint200JSONResponse(out), err
}

// DeleteEndpoint deletes an endpoint.
func (s *Server) DeleteEndpoint(ctx context.Context, r DeleteEndpointRequestObject) (DeleteEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Store.DeleteEndpoint(ctx, principalOf(ctx).Tenant, id); err != nil {
		return nil, err
	}
	return DeleteEndpoint204Response{}, nil
}

// endpointID reads the id in a path; nothing else than a UUID names an endpoint.
func endpointID(raw string) (string, error) {
	id, err := uuid.Parse(raw)
	if err != nil {
		return "", asyncflow.Errorf(asyncflow.CodeNotFound, "there is no endpoint %q", raw)
	}
	return id.String(), nil
}

// endpointOut returns an endpoint of the caller's as it may be seen.
func (s *Server) endpointOut(ctx context.Context, e asyncflow.Endpoint) (Endpoint, error) {
	all, err := s.endpointsOut(ctx, []asyncflow.Endpoint{e})
	if err != nil {
		return Endpoint{}, err
	}
	return all[0], nil
}

func (s *Server) endpointsOut(ctx context.Context, endpoints []asyncflow.Endpoint) ([]Endpoint, error) {
	now := s.cfg.Store.Clock.Now()
	counts, err := s.cfg.Store.EndpointFailures(ctx, principalOf(ctx).Tenant, now.Add(-asyncflow.FailureWindow))
	if err != nil {
		return nil, err
	}
	counted := make(map[string]store.Failing, len(counts))
	for _, c := range counts {
		counted[c.ID] = c.Failing
	}
	out := make([]Endpoint, len(endpoints))
	for i, e := range endpoints {
		if out[i], err = s.seenEndpoint(e, counted[e.ID], now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Server) seenEndpoint(e asyncflow.Endpoint, counted store.Failing, now time.Time) (Endpoint, error) {
	o, err := s.cfg.Keys.OpenOutbound(e)
	if err != nil {
		return Endpoint{}, err
	}
	o = o.Masked()
	out := Endpoint{ID: e.ID, Type: e.Type, Stage: e.Stage, URL: e.URL, Weight: e.Weight, MaxInFlight: e.Limits.MaxInFlight, Rate: e.Limits.Rate, Batch: e.Batch,
		Health: healthOut(e.Health, counted, now), Secrets: secretsOut(e, now), OldSecretSignsUntil: e.OldSecretSignsUntil(now),
		Headers: o.Headers, Auth: o.Auth, TLS: o.TLS, Verification: verificationOf(e), VerifiedAt: e.VerifiedAt, VerificationError: e.VerificationError,
		CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt}
	return out, nil
}

func healthOut(h asyncflow.Health, counted store.Failing, now time.Time) EndpointHealth {
	out := EndpointHealth{State: h.At(now), Since: h.Since, Reason: h.Reason, Attempts: counted.Attempts, Failures: counted.Failures}
	switch out.State {
	case asyncflow.HealthOpen:
		out.Until = h.Until
	case asyncflow.HealthHalfOpen:
		out.Since = h.Until
	}
	return out
}

func secretsOut(e asyncflow.Endpoint, now time.Time) []EndpointSecret {
	active := e.ActiveSecrets(now)
	out := make([]EndpointSecret, len(active))
	for i, s := range active {
		out[i] = EndpointSecret{ID: s.ID, Kind: s.Kind, PublicKey: s.PublicKey, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt}
	}
	return out
}

func verificationOf(e asyncflow.Endpoint) EndpointVerification {
	switch {
	case !e.VerifiedAt.IsZero():
		return Verified
	case e.Challenged:
		return Unverified
	}
	return Unneeded
}
