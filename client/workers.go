package client

import (
	"context"
	"net/http"
	"strconv"
)

// Workers lists the workers that run tasks now, or ended attempts lately: in the last 15 minutes,
// without a time. The worst come first. WorkerReport.Searched says whether all attempts were read.
func (c *Client) Workers(ctx context.Context, p WorkerParams) (WorkerReport, error) {
	params := map[string]string{"type": p.Type, "since": timeParam(p.Since)}
	if p.Limit != 0 {
		params["limit"] = strconv.Itoa(p.Limit)
	}
	return call[WorkerReport](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListWorkers(ctx, nil, query(params))
	})
}
