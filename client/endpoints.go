package client

import (
	"bytes"
	"context"
	"net/http"

	"github.com/asyncflow/asyncflow/client/api"
)

// CreateEndpoint registers an endpoint. Only this answer contains its secret. If another endpoint
// of the stage has the same URL, the error has CodeConflict, unless e.AllowDuplicate is set.
func (c *Client) CreateEndpoint(ctx context.Context, e NewEndpoint) (Endpoint, error) {
	body, err := encode(e)
	if err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.CreateEndpointWithBody(ctx, contentJSON, bytes.NewReader(body))
	})
}

// UpdateEndpoint changes the fields of an endpoint that p sets. A new URL is challenged again,
// which may take 10 s.
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

// VerifyEndpoint challenges an endpoint, which may take 10 s. The result is in VerificationError.
func (c *Client) VerifyEndpoint(ctx context.Context, id string) (Endpoint, error) {
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.VerifyEndpoint(ctx, id)
	})
}

// TestEndpoint sends a test delivery with a context to an endpoint; nil: {}. It may take 20 s. The
// result also says why the endpoint gave no answer: that is no error.
func (c *Client) TestEndpoint(
	ctx context.Context, id string, t EndpointTest,
) (EndpointTestResult, error) {
	body, err := encode(t)
	if err != nil {
		return EndpointTestResult{}, err
	}
	if err := checkPart("id", id); err != nil {
		return EndpointTestResult{}, err
	}
	return call[EndpointTestResult](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.TestEndpointWithBody(ctx, id, contentJSON, bytes.NewReader(body))
	})
}

// EnableEndpoint resumes deliveries to an endpoint that is disabled or open.
func (c *Client) EnableEndpoint(ctx context.Context, id string) (Endpoint, error) {
	if err := checkPart("id", id); err != nil {
		return Endpoint{}, err
	}
	return call[Endpoint](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.EnableEndpoint(ctx, id)
	})
}

// RotateEndpointSecret replaces the secret that signs deliveries to an endpoint. Only this answer
// contains the new secret.
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

// Endpoints returns the endpoints, without their secrets, by type, stage and age. taskType selects
// one task type; "": all.
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

// EndpointHistory returns the last hour of an endpoint.
func (c *Client) EndpointHistory(ctx context.Context, id string) (EndpointHistory, error) {
	if err := checkPart("id", id); err != nil {
		return EndpointHistory{}, err
	}
	return call[EndpointHistory](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetEndpointHistory(ctx, id)
	})
}

// DeleteEndpoint deletes an endpoint. Its deliveries in flight are finished.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	if err := checkPart("id", id); err != nil {
		return err
	}
	_, err := call[noAnswer](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteEndpoint(ctx, id)
	})
	return err
}
