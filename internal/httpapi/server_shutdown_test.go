package httpapi_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// A server that was stopped before it listened doesn't start to listen.
func TestShutdownBeforeServe(t *testing.T) {
	b := setup(t)
	server, err := httpapi.New(httpapi.Config{
		Store: b.store, Committer: b.committer, Verifier: b.verifier, Keys: b.keys})
	require.NoError(t, err)
	require.NoError(t, server.Shutdown(time.Second))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "it serves")
	}
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}
