package main

import (
	"io"

	"github.com/asyncflow/asyncflow/client"
)

const defaultURL = "http://127.0.0.1:8080"

// globals is the environment that every command runs in.
type globals struct {
	stdout  io.Writer // for results only
	stderr  io.Writer // for everything else
	output  string    // "table", "json", or "quiet" for listen
	env     lookup
	api     *client.Client
	connect func(...client.Option) (*client.Client, error) // to the same server
}

// newGlobals checks the global flags. Only if neither --url nor --token is set, it takes both
// from a running dev server: a token must not go to a server that it isn't for.
func newGlobals(f *globalFlags, stdout, stderr io.Writer, env lookup) (*globals, error) {
	url, token := f.URL, f.Token
	if url == "" && token == "" {
		url, token, _ = devDefaults(env)
	}
	if url == "" {
		url = defaultURL
	}
	connect := func(more ...client.Option) (*client.Client, error) {
		return client.New(url, token, append(more, client.WithUserAgent("asyncflow/"+version))...)
	}
	api, err := connect()
	if err != nil {
		return nil, usageError(err)
	}
	return &globals{stdout: stdout, stderr: stderr, output: f.Output, env: env, api: api,
		connect: connect}, nil
}

// client returns the client of the server that --url and --token name.
func (g *globals) client() *client.Client { return g.api }

// getenv returns an environment variable, empty if it isn't set.
func (g *globals) getenv(name string) string {
	value, _ := g.env(name)
	return value
}
