package node

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// prepareMetrics registers what the metrics report of the parts and, if they have a
// listener of their own, collects its server.
func (n *node) prepareMetrics() {
	if n.meter == nil {
		return
	}
	n.meter.Watch(n.store)
	if n.dispatcher != nil {
		n.meter.InFlight(n.dispatcher.InFlight)
	}
	if n.cfg.has(RoleAPI) {
		n.meterTokens()
	}
	if n.cfg.Metrics == MetricsApart {
		n.watch = n.serveMetrics
	}
}

// meterTokens adds whether the keys and issuers of tokens are up to date.
func (n *node) meterTokens() {
	var file func() bool
	if n.cfg.Issuers != nil {
		file = n.cfg.Issuers.Stale
	}
	n.meter.Tokens(n.cfg.Tokens.Stale, file)
}

// metricsHeaderTime bounds how long a caller may take to send its request.
const metricsHeaderTime = 5 * time.Second

// serveMetrics serves /metrics, and nothing else, at the listener of the metrics until ctx
// ends.
func (n *node) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.meter.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: metricsHeaderTime}
	n.cfg.Log.Info("metrics are served", "listen", n.cfg.MetricsListener.Addr().String())
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(n.cfg.MetricsListener)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
