package client

import (
	"bytes"
	"context"
	"net/http"
)

// PutAlerts sets up where alerts go, and when. The answer holds their secret if it is
// new; without one in a, the one there is stays.
func (c *Client) PutAlerts(ctx context.Context, a NewAlerts) (Alerts, error) {
	body, err := encode(a)
	if err != nil {
		return Alerts{}, err
	}
	return call[Alerts](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PutAlertsWithBody(ctx, contentJSON, bytes.NewReader(body))
	})
}

// Alerts returns where alerts go, and what has fired; an error of the code not_found if
// none are set up.
func (c *Client) Alerts(ctx context.Context) (Alerts, error) {
	return call[Alerts](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetAlerts(ctx)
	})
}

// DeleteAlerts has no more alerts sent.
func (c *Client) DeleteAlerts(ctx context.Context) error {
	_, err := call[none](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteAlerts(ctx)
	})
	return err
}
