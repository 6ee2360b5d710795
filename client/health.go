package client

import (
	"context"
	"net/http"
)

// Health reports whether the server's process is alive. It needs no token.
func (c *Client) Health(ctx context.Context) (ServerHealth, error) {
	return call[ServerHealth](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.Health(ctx)
	})
}

// Ready reports whether the server can take requests now. It needs no token.
func (c *Client) Ready(ctx context.Context) (ServerHealth, error) {
	return call[ServerHealth](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.Ready(ctx)
	})
}
