package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ListenAndServe is Serve at a TCP address, such as "127.0.0.1:9000".
func (w *Worker) ListenAndServe(ctx context.Context, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return w.Serve(ctx, l)
}

// Serve serves deliveries from a listener, under any path, and registers the handlers if
// Config.Registration is set. When ctx ends, it refuses new deliveries and waits up to Config.Grace
// for deliveries in flight; it returns nil if all of them are reported. A Worker serves once.
//
// It speaks plain HTTP/1.1: put TLS in front of it, or serve the Worker, which is an http.Handler,
// by a server of your own.
func (w *Worker) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           w,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(l) }()
	registering, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.cfg.Registration != nil {
		go func() {
			if err := w.Register(registering, *w.cfg.Registration); err != nil && ctx.Err() == nil {
				ended <- err
			}
		}()
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, w.stop(server))
}

// stop stops in two steps: no more requests, then no more work.
func (w *Worker) stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.Grace)
	defer cancel()
	return errors.Join(server.Shutdown(ctx), w.Close(ctx))
}
