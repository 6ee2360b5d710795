package node

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// prepareAPI collects what the role api runs: the servers, and what keeps the verifier of
// tokens up to date.
func (n *node) prepareAPI() error {
	n.runs = append(n.runs,
		func(ctx context.Context) error { return n.cfg.Tokens.Run(ctx, n.cfg.Log) })
	if n.cfg.Issuers != nil {
		n.runs = append(n.runs, n.cfg.Issuers.Run)
	}
	cfg := n.cfg.API
	cfg.Store, cfg.Committer = n.store, n.committer
	cfg.Keys, cfg.Sender = n.keys, n.sender
	cfg.Verifier, cfg.Log = n.cfg.Tokens, n.cfg.Log
	cfg.Tracer = n.cfg.Tracer
	if n.cfg.Metrics == MetricsOnAPI || n.cfg.Metrics == MetricsOpen {
		cfg.Metrics = n.meter.Handler()
		cfg.OperatorMetrics = n.cfg.Metrics == MetricsOnAPI
	}
	if n.cfg.Console != nil {
		pages, err := n.newConsole(*n.cfg.Console)
		if err != nil {
			return err
		}
		cfg.Console = pages
	}
	if n.cfg.AdminListener == nil {
		return n.serveAPI(cfg, n.cfg.Listener)
	}
	cfg.Surface = httpapi.SurfacePublic
	if err := n.serveAPI(cfg, n.cfg.Listener); err != nil {
		return err
	}
	cfg.Surface, cfg.Metrics = httpapi.SurfaceAdmin, nil
	return n.serveAPI(cfg, n.cfg.AdminListener)
}

// newConsole returns the console of all listeners.
func (n *node) newConsole(cfg console.Config) (*console.Console, error) {
	cfg.Secret, cfg.OldSecrets = n.cfg.Secret, n.cfg.OldSecrets
	cfg.Verifier, cfg.Version = n.cfg.Tokens, n.cfg.API.Version
	cfg.PublicURL, cfg.Log = n.cfg.Callbacks.PublicURL, n.cfg.Log
	return console.New(cfg)
}

// serveAPI collects a server of the API that answers at a listener.
func (n *node) serveAPI(cfg httpapi.Config, l net.Listener) error {
	api, err := httpapi.New(cfg)
	if err != nil {
		return err
	}
	n.runs = append(n.runs, func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- api.Serve(l) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		api.Drain()
		if err := n.awaitDrain(ctx, served); err != nil {
			return err
		}
		n.stopAPI(api)
		return nil
	})
	return nil
}

// awaitDrain waits while load balancers learn that the node stops, unless a part of it failed.
func (n *node) awaitDrain(ctx context.Context, served <-chan error) error {
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	select {
	case err := <-served:
		return err
	case <-time.After(n.cfg.DrainDelay):
		return nil
	}
}

// apiStopTime bounds the end of requests in progress; waiting calls answer at once.
const apiStopTime = 5 * time.Second

func (n *node) stopAPI(api *httpapi.Server) {
	if err := api.Shutdown(apiStopTime); err != nil {
		n.cfg.Log.Warn("connections were still open when the API stopped", "error", err)
	}
}
