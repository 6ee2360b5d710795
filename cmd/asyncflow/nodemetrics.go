package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Where metrics are, unless at an address of their own.
const (
	metricsOnAPI = "api"
	metricsOff   = "off"
)

// metricsHeaderTime bounds how long a caller may take to ask.
const metricsHeaderTime = 5 * time.Second

// serveMetrics serves /metrics, and nothing else, at an address of its own until ctx
// ends.
func (n *node) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.meter.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: metricsHeaderTime}
	n.cfg.log.Info("metrics are served", "listen", n.cfg.metricsListener.Addr().String())
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(n.cfg.metricsListener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// meterTokens has the metrics tell whether what tokens are verified with is up to date.
func (n *node) meterTokens() {
	if n.meter == nil {
		return
	}
	var file func() bool
	if n.cfg.issuers != nil {
		file = n.cfg.issuers.stale
	}
	n.meter.Tokens(n.cfg.tokens.Stale, file)
}
