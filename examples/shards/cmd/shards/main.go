// Command shards serves the sample worker that counts words.
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

	"github.com/asyncflow/asyncflow/examples/shards"
)

// grace is the time for a stop.
const grace = 20 * time.Second

type options struct {
	Addr   string `help:"Address to listen on." env:"SHARDS_ADDR" default:"127.0.0.1:8091"`
	Texts  string `help:"Folder of the texts." env:"SHARDS_TEXTS" default:"examples/shards/texts" type:"path"`
	Secret string `help:"Signing secret, whsec_ and base64." env:"SHARDS_SECRET" required:""`
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("A sample worker of asyncflow: counts the words of text "+
		"files."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, o, func(addr string) { slog.Info("serving", "addr", addr) }); err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It calls ready once, with the address that it listens on.
func run(ctx context.Context, o options, ready func(addr string)) error {
	worker, err := shards.New(shards.Config{Texts: os.DirFS(o.Texts), Secret: o.Secret})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: worker, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(listener.Addr().String())
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, server.Shutdown(ending), worker.Close(ending))
}
