package node

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/internal/coalesce"
)

// metricsHeaderTime bounds how long a caller may take to send its request.
const metricsHeaderTime = 5 * time.Second

// readyTimeout bounds the check of the database for /readyz.
const readyTimeout = 2 * time.Second

// serveMetrics serves /metrics, /healthz and /readyz, and nothing else, at the listener of the
// metrics until ctx ends: on nodes without the API there is no other place for the probes.
func (n *node) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.meter.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeProbe(w, http.StatusOK, "ok")
	})
	mux.Handle("GET /readyz", n.readyHandler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: metricsHeaderTime}
	n.cfg.Log.Info("metrics are served", "listen", n.cfg.MetricsListener.Addr().String())
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(n.cfg.MetricsListener)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// readyHandler reports whether the node can do its work: it doesn't stop, and the database answers,
// takes writes and is at the schema. Callers at the same time share a check.
func (n *node) readyHandler() http.HandlerFunc {
	pings := coalesce.New(readyTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, n.store.Ping(ctx)
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if n.stopping.Load() {
			writeProbe(w, http.StatusServiceUnavailable, "stopping")
			return
		}
		if _, err := pings.Get(r.Context()); err != nil {
			n.cfg.Log.Debug("not ready", "error", err)
			writeProbe(w, http.StatusServiceUnavailable, "no database")
			return
		}
		writeProbe(w, http.StatusOK, "ok")
	}
}

// writeProbe answers a probe. Programs read the status code, people the text.
func writeProbe(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	io.WriteString(w, `{"status":"`+status+`"}`+"\n")
}
