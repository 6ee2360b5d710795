package client

import (
	"context"
)

// Health reports whether the server's process is alive. It needs no token.
func (c *Client) Health(ctx context.Context) (ServerHealth, error) {
	return callBare[ServerHealth](ctx, c, c.api.Health)
}

// Ready reports whether the server can take requests now. It needs no token.
func (c *Client) Ready(ctx context.Context) (ServerHealth, error) {
	return callBare[ServerHealth](ctx, c, c.api.Ready)
}
