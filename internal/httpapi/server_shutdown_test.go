package httpapi_test

import (
	"net"
	"net/http"
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

// A server that drains answers, and makes each connection close: the next call goes elsewhere.
func TestDrain(t *testing.T) {
	b := setup(t)
	b.server.Drain()
	a := b.callAs("", http.MethodGet, "/readyz", "")
	require.Equal(t, 503, a.status)
	require.Equal(t, "the node is stopping: send requests to another one", a.problem.Detail)
	for path, status := range map[string]int{"/healthz": 200, "/v1/task-types": 200, "/none": 404} {
		req, err := http.NewRequest(http.MethodGet, b.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+b.token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, path)
		require.True(t, resp.Close, path)
	}
}
