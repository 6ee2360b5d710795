package client

import (
	"context"
	"net/http"
)

// Stats returns the counts of the task types by name. taskType selects one of them; "": all.
func (c *Client) Stats(ctx context.Context, taskType string) ([]Stats, error) {
	list, err := call[StatsList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetStats(ctx, nil, query(map[string]string{"type": taskType}))
	})
	return list.Data, err
}

// Governance returns the nodes, and the last run of each background job. It needs a token with the
// scope admin.
func (c *Client) Governance(ctx context.Context) (Governance, error) {
	return callBare[Governance](ctx, c, c.api.GetGovernance)
}

// NodeCounts returns how many nodes serve all tenants, by role, and their versions.
func (c *Client) NodeCounts(ctx context.Context) (NodeCounts, error) {
	return callBare[NodeCounts](ctx, c, c.api.GetNodeCounts)
}

// Health reports whether the server's process is alive. It needs no token.
func (c *Client) Health(ctx context.Context) (ServerHealth, error) {
	return callBare[ServerHealth](ctx, c, c.api.Health)
}

// Ready reports whether the server can take requests now. It needs no token.
func (c *Client) Ready(ctx context.Context) (ServerHealth, error) {
	return callBare[ServerHealth](ctx, c, c.api.Ready)
}
