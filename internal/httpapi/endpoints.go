package httpapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	. "github.com/asyncflow/asyncflow/client/api"
)

// CreateEndpoint registers an endpoint. Its secret is in the answer to this call
// and nowhere else.
func (s *Server) CreateEndpoint(ctx context.Context, r CreateEndpointRequestObject) (CreateEndpointResponseObject, error) {
	e := asyncflow.Endpoint{ID: uuid.Must(uuid.NewV7()).String(), Type: r.Body.Type, Stage: r.Body.Stage, URL: r.Body.Url}
	if err := e.Validate(s.cfg.AllowHTTP); err != nil {
		return nil, err
	}
	secret := r.Body.Secret
	if secret == "" {
		secret = callbacks.NewSecret()
	} else if err := callbacks.CheckSecret(secret); err != nil {
		return nil, err
	}
	e.Secret = s.cfg.Keys.Seal(secret, e.ID)
	stored, err := s.cfg.Store.CreateEndpoint(ctx, principalOf(ctx).Tenant, e)
	if err != nil {
		return nil, err
	}
	out := endpointOut(stored)
	out.Secret = secret
	return CreateEndpoint201JSONResponse(out), nil
}

// ListEndpoints lists the tenant's endpoints.
func (s *Server) ListEndpoints(ctx context.Context, r ListEndpointsRequestObject) (ListEndpointsResponseObject, error) {
	endpoints, err := s.cfg.Store.Endpoints(ctx, principalOf(ctx).Tenant, r.Params.Type)
	if err != nil {
		return nil, err
	}
	data := make([]Endpoint, len(endpoints))
	for i, e := range endpoints {
		data[i] = endpointOut(e)
	}
	return ListEndpoints200JSONResponse{Data: data}, nil
}

// GetEndpoint returns one endpoint.
func (s *Server) GetEndpoint(ctx context.Context, r GetEndpointRequestObject) (GetEndpointResponseObject, error) {
	e, err := s.cfg.Store.Endpoint(ctx, principalOf(ctx).Tenant, r.Id)
	if err != nil {
		return nil, err
	}
	return GetEndpoint200JSONResponse(endpointOut(e)), nil
}

// DeleteEndpoint deletes an endpoint.
func (s *Server) DeleteEndpoint(ctx context.Context, r DeleteEndpointRequestObject) (DeleteEndpointResponseObject, error) {
	if err := s.cfg.Store.DeleteEndpoint(ctx, principalOf(ctx).Tenant, r.Id); err != nil {
		return nil, err
	}
	return DeleteEndpoint204Response{}, nil
}

func endpointOut(e asyncflow.Endpoint) Endpoint {
	return Endpoint{Id: e.ID, Type: e.Type, Stage: e.Stage, Url: e.URL, CreatedAt: e.CreatedAt}
}
