// Command moderation serves the page of the sample on which people judge images.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/examples/moderation"
)

// grace is the time for a stop.
const grace = 30 * time.Second

type options struct {
	Addr string `help:"Address to listen on." env:"MODERATION_ADDR" default:"127.0.0.1:8092"`
	// The dev server tells both by its export lines.
	URL   string `name:"url" env:"ASYNCFLOW_URL" default:"http://localhost:8080"`
	Token string `help:"Token with the scope work." env:"ASYNCFLOW_TOKEN" required:""`
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("A sample of asyncflow: a page on which people judge images."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, o, func(addr string) { slog.Info("serving", "addr", "http://"+addr) })
	if err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It calls ready once, with the address that it listens on.
func run(ctx context.Context, o options, ready func(addr string)) error {
	c, err := client.New(o.URL, o.Token)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: moderation.New(moderation.Config{Client: c}),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(listener.Addr().String())
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, server.Shutdown(ending))
}
