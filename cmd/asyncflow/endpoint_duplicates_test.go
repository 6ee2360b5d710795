package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// There is only one endpoint per URL in a stage, however often and in whatever way it is
// registered.
func TestAURLIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	env := map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": p.token()}
	file := filepath.Join(t.TempDir(), "types.yaml")
	document := "types:\n  - name: docs\n    stages: [{name: only}]\nendpoints:\n  - {type: " +
		"docs, stage: only, url: URL}\n"
	apply := func(url string) ran {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(document, "URL", url)),
			0o600))
		return runCLI(t, env, "types", "apply", "-f", file)
	}
	out := apply("https://w.example.com/a")
	require.Zero(t, out.code, out.stderr)
	require.Contains(t, out.stdout, "created")
	out = apply("https://W.example.com:443/a")
	require.Zero(t, out.code, out.stderr)
	require.NotContains(t, out.stdout, "created", "another spelling is the same endpoint")

	create := []string{
		"endpoints",
		"create",
		"--type",
		"docs",
		"--stage",
		"only",
		"https://w.example.com/a",
	}
	out = runCLI(t, env, create...)
	require.NotZero(t, out.code)
	require.Contains(t, out.stderr, "allow_duplicate")
	out = runCLI(t, env, append(create, "--allow-duplicate")...)
	require.Zero(t, out.code, out.stderr)
	endpoints, err := p.client().Endpoints(t.Context(), "docs")
	require.NoError(t, err)
	require.Len(t, endpoints, 2)
}

// Several processes of a worker that start at once share the endpoints.
func TestSDKRegisterAtOnce(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	registration := sdk.Registration{Client: c}
	w := startSDKWorker(t, sdk.Config{Registration: &registration})
	sdk.Handle(
		w.Worker,
		"pipe",
		"first",
		func(_ context.Context, task sdk.Task[counted]) (counted, error) {
			return task.Context, nil
		},
	)
	registration.URL = w.url
	_, err := c.PutTaskType(
		t.Context(),
		"pipe",
		client.TaskTypeSpec{Stages: []client.Stage{{Name: "first"}}},
	)
	require.NoError(t, err)
	const n = 6
	done := make(chan error, n)
	for range n {
		go func() { done <- w.Register(context.WithoutCancel(t.Context()), registration) }()
	}
	for range n {
		require.NoError(t, <-done)
	}
	endpoints, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.Len(t, endpoints, 1)
}
