package client

import (
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// HistoryQuery says which history to read. Fields that are zero stand for the server's defaults.
type HistoryQuery struct {
	Type  string // "": all types together
	Stage string // of the type; "": all stages together
	// From and Until are rounded to steps, outwards. By default they are an hour before Until, and
	// now.
	From, Until time.Time
	Step        time.Duration // of one point: 1m to 24h
	ByType      bool          // also each type by itself, as Types; only without Type
}

// History returns what the tasks of a type, or of all types together, did over time: by minute for
// the last 24 hours, by hour for the last 30 days. There is no point for steps without data.
func (c *Client) History(ctx context.Context, q HistoryQuery) (StatsHistory, error) {
	params := map[string]string{"stage": q.Stage}
	for name, at := range map[string]time.Time{"from": q.From, "until": q.Until} {
		if !at.IsZero() {
			params[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	if q.Step != 0 {
		params["step"] = q.Step.String()
	}
	if q.ByType {
		params["by_type"] = "true"
	}
	if q.Type == "" {
		return call[StatsHistory](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
			return c.api.GetStatsHistory(ctx, nil, query(params))
		})
	}
	return callOn[StatsHistory](ctx, c, "type", q.Type, func(
		ctx context.Context, name string, _ ...api.RequestEditorFn,
	) (*http.Response, error) {
		return c.api.GetTypeHistory(ctx, name, nil, query(params))
	})
}
