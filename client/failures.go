package client

import (
	"context"
	"net/http"
	"strconv"
)

// Failures groups the tasks that failed in a time by their errors: of the last hour, without
// a time. FailureReport.Searched says whether all failures were read. ListParams
// and the bulk calls take the Fingerprint of a group.
func (c *Client) Failures(ctx context.Context, p FailureParams) (FailureReport, error) {
	params := map[string]string{"type": p.Type, "since": timeParam(p.Since),
		"until": timeParam(p.Until), "order": string(p.Order)}
	if p.Limit != 0 {
		params["limit"] = strconv.Itoa(p.Limit)
	}
	return call[FailureReport](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetFailures(ctx, nil, query(params))
	})
}
