// Command thumbnails serves the sample worker that makes thumbnails.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/asyncflow/asyncflow/examples/thumbnails"
)

const (
	requestGrace = 5 * time.Second  // at a stop, for requests in flight
	workGrace    = 20 * time.Second // after that, for accepted deliveries
)

type options struct {
	Addr   string `help:"Address to listen on." env:"THUMBNAILS_ADDR" default:"127.0.0.1:8081"`
	Images string `help:"Folder of the images." env:"THUMBNAILS_IMAGES" default:"images" type:"path"`
	Out    string `help:"Folder to write to." env:"THUMBNAILS_OUT" default:"thumbnails" type:"path"`
	Secret string `help:"Signing secret, whsec_ and base64." env:"THUMBNAILS_SECRET" required:""`

	WriteSamples bool `help:"Write sample images at start." env:"THUMBNAILS_WRITE_SAMPLES"`
}

func main() {
	var o options
	kong.Parse(&o,
		kong.Description("A sample worker of asyncflow: makes thumbnails of the images in a "+
			"folder."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	ready := func(addr string) {
		slog.Info("serving", "addr", addr, "images", o.Images, "thumbnails", o.Out)
	}
	if err := run(ctx, o, ready); err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. Then it answers the requests in flight and completes the accepted
// deliveries. It calls ready once, with the address that it listens on.
func run(ctx context.Context, o options, ready func(addr string)) error {
	if o.WriteSamples {
		if _, err := thumbnails.WriteSamples(o.Images); err != nil {
			return err
		}
	}
	worker, err := thumbnails.New(thumbnails.Config{Images: o.Images, Thumbnails: o.Out,
		Secret: o.Secret})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return errors.Join(err, worker.Close(context.WithoutCancel(ctx)))
	}
	server := newServer(worker)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(listener.Addr().String())
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("serve: %w", err), closeWorker(worker))
	case <-ctx.Done():
		return stop(server, worker)
	}
}

// newServer bounds every part of a request. Deliveries are small and answered at once: whatever
// takes longer comes from a client that is gone or hostile.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// stop stops in two steps: no more requests, then no more work.
func stop(server *http.Server, worker *thumbnails.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestGrace)
	defer cancel()
	return errors.Join(server.Shutdown(ctx), closeWorker(worker))
}

func closeWorker(worker *thumbnails.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), workGrace)
	defer cancel()
	return worker.Close(ctx)
}
