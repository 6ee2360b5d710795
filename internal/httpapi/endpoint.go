package httpapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// CreateEndpoint registers an endpoint, and challenges it unless challenges are off. The endpoint's
// secret is in the answer to this call only.
func (s *Server) CreateEndpoint(
	ctx context.Context, r CreateEndpointRequestObject,
) (CreateEndpointResponseObject, error) {
	e := asyncflow.Endpoint{
		ID:             uuid.Must(uuid.NewV7()).String(),
		Type:           r.Body.Type,
		Stage:          r.Body.Stage,
		URL:            r.Body.URL,
		Weight:         asyncflow.DefaultWeight,
		Challenged:     s.cfg.VerifyEndpoints,
		AllowDuplicate: r.Body.AllowDuplicate,
		Limits:         asyncflow.Limits{MaxInFlight: r.Body.MaxInFlight, Rate: r.Body.Rate},
		Batch:          r.Body.Batch,
	}
	if r.Body.Weight != nil {
		e.Weight = *r.Body.Weight
	}
	var err error
	if r.Body.Listen {
		e, err = e.ForListening()
	} else {
		err = e.Validate(s.cfg.Egress)
	}
	if err != nil {
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
	store.AuditedCallOf(ctx).About(e.ID)
	store.AuditedCallOf(ctx).Note("type", e.Type)
	store.AuditedCallOf(ctx).Note("stage", e.Stage)
	stored, err := s.cfg.Store.CreateEndpoint(ctx, tenant, e)
	if err == nil && e.Challenged {
		stored, err = s.challenge(ctx, tenant, stored)
	}
	out, err := s.endpointAnswer(ctx, stored, err)
	out.Secret = secret
	return CreateEndpoint201JSONResponse(out), err
}

// ListEndpoints lists a page of the tenant's endpoints.
func (s *Server) ListEndpoints(
	ctx context.Context, r ListEndpointsRequestObject,
) (ListEndpointsResponseObject, error) {
	list := cursor.Of("endpoints", r.Params)
	after, err := readEndpointCursor(list, r.Params.Cursor)
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
		key := append([]string{last.Type, last.Stage}, cursor.PlaceKey(last.Place)...)
		out.NextCursor = list.Write(true, key...)
	}
	out.Data, err = s.endpointsOut(ctx, page)
	return out, err
}

func readEndpointCursor(list cursor.List, text string) (after store.EndpointPlace, err error) {
	key, err := list.Read(text, 4)
	if err != nil {
		return after, err
	}
	after.Type = key[0]
	after.Stage = key[1]
	if text != "" && (asyncflow.CheckName(key[0]) != nil || asyncflow.CheckName(key[1]) != nil) {
		return after, cursor.Bad()
	}
	after.Place, err = cursor.ParsePlace(key[2], key[3])
	return after, err
}

// GetEndpoint returns one endpoint.
func (s *Server) GetEndpoint(
	ctx context.Context, r GetEndpointRequestObject,
) (GetEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	e, err := s.cfg.Store.Endpoint(ctx, principalOf(ctx).Tenant, id)
	out, err := s.endpointAnswer(ctx, e, err)
	return GetEndpoint200JSONResponse(out), err
}

// DeleteEndpoint deletes an endpoint.
func (s *Server) DeleteEndpoint(
	ctx context.Context, r DeleteEndpointRequestObject,
) (DeleteEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	err = s.cfg.Store.DeleteEndpoint(withPrecondition(ctx), principalOf(ctx).Tenant, id)
	return DeleteEndpoint204Response{}, err
}

// endpointID parses the id in a path. Only UUIDs name endpoints.
func endpointID(raw string) (string, error) {
	id, err := uuid.Parse(raw)
	if err != nil {
		return "", asyncflow.Errorf(asyncflow.CodeNotFound, "there is no endpoint %q", raw)
	}
	return id.String(), nil
}
