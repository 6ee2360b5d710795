package client

import (
	"bytes"
	"context"
	"net/http"

	"github.com/asyncflow/asyncflow/client/api"
)

// CreateEndpoint registers an endpoint. Only this answer holds its secret. A URL that another
// endpoint of the stage has is CodeConflict, unless e.AllowDuplicate.
func (c *Client) CreateEndpoint(ctx context.Context, e NewEndpoint) (Endpoint, error) {
	body, err := encode(e)
	if err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.CreateEndpointWithBody(ctx, contentJSON, bytes.NewReader(body))
	})
}

// UpdateEndpoint changes what p has of an endpoint. One with another URL is challenged
// again, which may take 10 s.
func (c *Client) UpdateEndpoint(ctx context.Context, id string, p EndpointPatch) (Endpoint, error) {
	body, err := encode(p)
	if err != nil {
		return Endpoint{}, err
	}
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.UpdateEndpointWithBody(ctx, id, contentJSON, bytes.NewReader(body))
	})
}

// VerifyEndpoint challenges an endpoint, which may take 10 s. The answer says how that
// went: see its VerificationError.
func (c *Client) VerifyEndpoint(ctx context.Context, id string) (Endpoint, error) {
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.VerifyEndpoint(ctx, id)
	})
}

// EnableEndpoint has an endpoint get deliveries again that is disabled or open.
func (c *Client) EnableEndpoint(ctx context.Context, id string) (Endpoint, error) {
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.EnableEndpoint(ctx, id)
	})
}

// RotateEndpointSecret has deliveries to an endpoint signed with another secret. Only
// this answer holds it.
func (c *Client) RotateEndpointSecret(
	ctx context.Context, id string, r SecretRotation,
) (Endpoint, error) {
	body, err := encode(r)
	if err != nil {
		return Endpoint{}, err
	}
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.RotateEndpointSecretWithBody(ctx, id, contentJSON, bytes.NewReader(body))
	})
}

// Endpoints returns the endpoints by type, stage and age, without their
// secrets; those of one task type unless taskType is empty.
func (c *Client) Endpoints(ctx context.Context, taskType string) ([]Endpoint, error) {
	get := func(ctx context.Context, page api.RequestEditorFn) (*http.Response, error) {
		return c.api.ListEndpoints(ctx, nil, page)
	}
	params := map[string]string{"type": taskType}
	read := func(p EndpointList) ([]Endpoint, string) { return p.Data, p.NextCursor }
	return gathered(listed(ctx, c, params, get, read))
}

// Endpoint returns an endpoint, without its secret.
func (c *Client) Endpoint(ctx context.Context, id string) (Endpoint, error) {
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetEndpoint(ctx, id)
	})
}

// DeleteEndpoint deletes an endpoint. Deliveries under way to it are finished.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	if err := checkPart("id", id); err != nil {
		return err
	}
	_, err := call[none](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteEndpoint(ctx, id)
	})
	return err
}
