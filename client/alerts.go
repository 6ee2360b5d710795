package client

import (
	"bytes"
	"context"
	"net/http"
)

// PutAlerts sets where alerts are sent, and when. The answer contains their secret only if it is
// new; if a has none, the present secret stays.
func (c *Client) PutAlerts(ctx context.Context, a NewAlerts) (Alerts, error) {
	body, err := encode(a)
	if err != nil {
		return Alerts{}, err
	}
	return call[Alerts](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PutAlertsWithBody(ctx, contentJSON, bytes.NewReader(body))
	})
}

// Alerts returns where alerts are sent, and which have fired. If none are set up, the error has the
// code not_found.
func (c *Client) Alerts(ctx context.Context) (Alerts, error) {
	return call[Alerts](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetAlerts(ctx)
	})
}

// FiringAlerts returns the episodes that go on, newest first, and whether alerts are set up. It
// needs the scope read only.
func (c *Client) FiringAlerts(ctx context.Context) (FiringAlerts, error) {
	return call[FiringAlerts](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetFiringAlerts(ctx)
	})
}

// DeleteAlerts stops all alerts.
func (c *Client) DeleteAlerts(ctx context.Context) error {
	_, err := call[noAnswer](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteAlerts(ctx)
	})
	return err
}
