package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// secretsIn opens the secrets in a directory.
func secretsIn(t *testing.T, dir string) (*listenSecrets, error) {
	t.Helper()
	g, err := newGlobals(&globalFlags{URL: "http://x", Token: "t"}, io.Discard, io.Discard,
		func(name string) (string, bool) { return dir, name == "XDG_CONFIG_HOME" })
	require.NoError(t, err)
	return openListenSecrets(g)
}

func listenEndpoint(n int) client.Endpoint {
	id := fmt.Sprint(n)
	return client.Endpoint{ID: id, Listen: true, Secrets: []api.EndpointSecret{{ID: "s" + id}}}
}

// Those who store secrets at the same time keep those of each other.
func TestListenSecretsAtTheSameTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all errgroup.Group
	const n = 20
	for i := range n {
		all.Go(func() error {
			s, err := secretsIn(t, dir)
			if err != nil {
				return err
			}
			defer s.close()
			return s.keep(listenEndpoint(i), fmt.Sprint("whsec_", i))
		})
	}
	require.NoError(t, all.Wait())
	s, err := secretsIn(t, dir)
	require.NoError(t, err)
	defer s.close()
	for i := range n {
		require.Equal(t, fmt.Sprint("whsec_", i), s.secretOf(listenEndpoint(i)))
	}
}

// A file with null is as none, and a failure leaves nothing behind.
func TestListenSecretsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "asyncflow", "listen.json")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("null"), 0o600))
	s, err := secretsIn(t, dir)
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, s.check())
	require.NoError(t, s.keep(listenEndpoint(1), "whsec_1"))
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	require.Error(t, s.keep(listenEndpoint(2), "whsec_2"))
	left, err := filepath.Glob(filepath.Join(dir, "asyncflow", "listen-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// No endpoint is made if its secret could not be stored.
func TestListenSecretsCanBeStored(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	env["XDG_CONFIG_HOME"] = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(env["XDG_CONFIG_HOME"], nil, 0o600))
	r := runCLI(t, env, "listen", "--print-secret")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "not a directory")
	all, err := node.client().Endpoints(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, all)
}

// A secret that isn't the endpoint's is refused; one that can't be checked is taken, with a word.
func TestListenComparesTheSecret(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	require.Zero(t, runCLI(t, env, "listen", "--print-secret").code)
	r := runCLI(t, env, "listen", "--print-secret")
	require.Zero(t, r.code)
	require.Empty(t, r.stderr, "it is known")
	env["ASYNCFLOW_ENDPOINT_SECRET"] = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	r = runCLI(t, env, "listen", "--print-secret")
	require.Equal(t, exitUsage, r.code, r.stderr)
	require.Contains(t, r.stderr, "ASYNCFLOW_ENDPOINT_SECRET isn't the signing secret of "+
		"pipe.first")
	elsewhere := listenEnv(node, node.url)
	elsewhere["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	r = runCLI(t, elsewhere, "listen", "--print-secret")
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, "this machine doesn't know it")
}
