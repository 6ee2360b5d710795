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
	if err := e.Validate(s.cfg.Egress); err != nil {
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
	id, err := endpointID(r.Id)
	if err != nil {
		return nil, err
	}
	e, err := s.cfg.Store.Endpoint(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	return GetEndpoint200JSONResponse(endpointOut(e)), nil
}

// DeleteEndpoint deletes an endpoint.
func (s *Server) DeleteEndpoint(ctx context.Context, r DeleteEndpointRequestObject) (DeleteEndpointResponseObject, error) {
	id, err := endpointID(r.Id)
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

func endpointOut(e asyncflow.Endpoint) Endpoint {
	return Endpoint{Id: e.ID, Type: e.Type, Stage: e.Stage, Url: e.URL, CreatedAt: e.CreatedAt}
}
