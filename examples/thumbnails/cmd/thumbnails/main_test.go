package main

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program serves on a free port, and stops on request.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options{
		Addr: "127.0.0.1:0", Images: filepath.Join(dir, "images"), Out: filepath.Join(dir, "out"),
		Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", WriteSamples: true,
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- run(ctx, o, func(a string) { addr <- a }) }()
	select {
	case a := <-addr:
		res, err := http.Get("http://" + a + "/healthz")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode)
	case err := <-done:
		require.NoError(t, err, "stopped before it served")
	}
	require.FileExists(t, filepath.Join(o.Images, "harbour.jpg"))
	cancel()
	require.NoError(t, <-done)
}

func TestRunRefusesABadSecret(t *testing.T) {
	t.Parallel()
	o := options{Addr: "127.0.0.1:0", Images: t.TempDir(), Out: t.TempDir(), Secret: "secret"}
	require.ErrorContains(t, run(context.Background(), o, func(string) {}), "whsec_")
}
