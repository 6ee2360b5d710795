package client

import (
	"context"
)

// PutAlerts sets where alerts are sent, and when. The answer contains their secret only if it is
// new; if there is none in a, the present secret stays.
func (c *Client) PutAlerts(ctx context.Context, a NewAlerts) (Alerts, error) {
	return callWith[Alerts](ctx, c, a, c.api.PutAlertsWithBody)
}

// Alerts returns where alerts are sent, and which fire. If none are set up, the error is of the
// code not_found.
func (c *Client) Alerts(ctx context.Context) (Alerts, error) {
	return callBare[Alerts](ctx, c, c.api.GetAlerts)
}

// FiringAlerts returns the episodes that go on, newest first, and whether alerts are set up. It
// needs the scope read only.
func (c *Client) FiringAlerts(ctx context.Context) (FiringAlerts, error) {
	return callBare[FiringAlerts](ctx, c, c.api.GetFiringAlerts)
}

// DeleteAlerts stops all alerts.
func (c *Client) DeleteAlerts(ctx context.Context) error {
	_, err := callBare[noAnswer](ctx, c, c.api.DeleteAlerts)
	return err
}
