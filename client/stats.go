package client

import (
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// Stats returns the counts of the task types by name. taskType selects one of them; "": all.
func (c *Client) Stats(ctx context.Context, taskType string) ([]Stats, error) {
	list, err := call[StatsList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetStats(ctx, nil, query(map[string]string{"type": taskType}))
	})
	return list.Data, err
}

// Scale returns how many tasks the workers of a stage of a type should be able to do at once, so
// that a backlog is gone within target; 0: a minute. A type with one stage needs no stage.
func (c *Client) Scale(
	ctx context.Context, taskType, stage string, target time.Duration,
) (Scale, error) {
	params := map[string]string{"stage": stage}
	if target > 0 {
		params["target"] = target.String()
	}
	return callOn[Scale](ctx, c, "type", taskType, func(
		ctx context.Context, name string, _ ...api.RequestEditorFn,
	) (*http.Response, error) {
		return c.api.GetScale(ctx, name, nil, query(params))
	})
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
