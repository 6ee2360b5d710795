package client

import (
	"context"
)

// CreateEndpoint registers an endpoint. Only this answer contains its secret. If another endpoint
// of the stage uses the same URL, the error is CodeConflict, unless e.AllowDuplicate is set.
func (c *Client) CreateEndpoint(ctx context.Context, e NewEndpoint) (Endpoint, error) {
	return callWith[Endpoint](ctx, c, e, c.api.CreateEndpointWithBody)
}

// UpdateEndpoint changes the fields of an endpoint that p sets. A new URL is challenged again,
// which may take 10 s.
func (c *Client) UpdateEndpoint(ctx context.Context, id string, p EndpointPatch) (Endpoint, error) {
	return callOnWith[Endpoint](ctx, c, "id", id, p, c.api.UpdateEndpointWithBody)
}

// VerifyEndpoint challenges an endpoint, which may take 10 s. The result is in VerificationError.
func (c *Client) VerifyEndpoint(ctx context.Context, id string) (Endpoint, error) {
	return callOn[Endpoint](ctx, c, "id", id, c.api.VerifyEndpoint)
}

// TestEndpoint sends a test delivery with a context to an endpoint; nil: {}. It may take 20 s. The
// result also says why the endpoint gave no answer: that is no error.
func (c *Client) TestEndpoint(
	ctx context.Context, id string, t EndpointTest,
) (EndpointTestResult, error) {
	return callOnWith[EndpointTestResult](ctx, c, "id", id, t, c.api.TestEndpointWithBody)
}

// EnableEndpoint resumes deliveries to an endpoint that is disabled or open.
func (c *Client) EnableEndpoint(ctx context.Context, id string) (Endpoint, error) {
	return callOn[Endpoint](ctx, c, "id", id, c.api.EnableEndpoint)
}

// RotateEndpointSecret replaces the secret that signs deliveries to an endpoint. Only this answer
// contains the new secret.
func (c *Client) RotateEndpointSecret(
	ctx context.Context, id string, r SecretRotation,
) (Endpoint, error) {
	return callOnWith[Endpoint](ctx, c, "id", id, r, c.api.RotateEndpointSecretWithBody)
}

// Endpoints returns the endpoints, without their secrets, by type, stage and age. taskType selects
// one task type; "": all.
func (c *Client) Endpoints(ctx context.Context, taskType string) ([]Endpoint, error) {
	params := map[string]string{"type": taskType}
	return gathered(listed[Endpoint](ctx, c, params, c.api.ListEndpoints))
}

// Endpoint returns an endpoint, without its secret.
func (c *Client) Endpoint(ctx context.Context, id string) (Endpoint, error) {
	return callOn[Endpoint](ctx, c, "id", id, c.api.GetEndpoint)
}

// EndpointHistory returns the last hour of an endpoint.
func (c *Client) EndpointHistory(ctx context.Context, id string) (EndpointHistory, error) {
	return callOn[EndpointHistory](ctx, c, "id", id, c.api.GetEndpointHistory)
}

// DeleteEndpoint deletes an endpoint. Its deliveries in flight are finished.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	_, err := callOn[noAnswer](ctx, c, "id", id, c.api.DeleteEndpoint)
	return err
}
