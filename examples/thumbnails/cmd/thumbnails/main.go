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
	requestGrace = 5 * time.Second  // for open requests to be answered at a stop
	workGrace    = 20 * time.Second // for accepted deliveries to be completed after that
)

type options struct {
	Addr         string `help:"Address to listen on." env:"THUMBNAILS_ADDR" default:"127.0.0.1:8081"`
	Images       string `help:"Folder that images are read from." env:"THUMBNAILS_IMAGES" default:"images" type:"path"`
	Out          string `help:"Folder that thumbnails are written to." env:"THUMBNAILS_OUT" default:"thumbnails" type:"path"`
	Secret       string `help:"Signing secret of the endpoints: whsec_ and the base64 of 24 to 64 bytes." env:"THUMBNAILS_SECRET" required:""`
	WriteSamples bool   `help:"Write sample images into the folder of images at start." env:"THUMBNAILS_WRITE_SAMPLES"`
}

func main() {
	var o options
	kong.Parse(&o,
		kong.Description("A sample worker of asyncflow: makes thumbnails of the images in a folder."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	if err := run(ctx, o, func(addr string) {
		slog.Info("serving", "addr", addr, "images", o.Images, "thumbnails", o.Out)
	}); err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, then answers what is open and completes what was
// accepted. ready is called once, with the address listened on.
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

// newServer bounds every part of a request: deliveries are small and answered at
// once, so whatever takes longer is a client that is gone or means ill.
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

// stop takes two steps: no more requests, then no more work.
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
