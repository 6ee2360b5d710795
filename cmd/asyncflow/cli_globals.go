package main

import (
	"io"

	"github.com/asyncflow/asyncflow/client"
)

const defaultURL = "http://127.0.0.1:8080"

// globals is the environment that every command runs in.
type globals struct {
	stdout io.Writer // for results only
	stderr io.Writer // for everything else
	output string    // "table" or "json"
	env    lookup
	api    *client.Client
}

// newGlobals checks the global flags. Only if neither --url nor --token is set, it takes both
// from a running dev server: a token must not go to a server that it isn't for.
func newGlobals(f *globalFlags, stdout, stderr io.Writer, env lookup) (*globals, error) {
	url, token := f.URL, f.Token
	if url == "" && token == "" {
		url, token, _ = devDefaults()
	}
	if url == "" {
		url = defaultURL
	}
	api, err := client.New(url, token, client.WithUserAgent("asyncflow/"+version))
	if err != nil {
		return nil, usageError(err)
	}
	return &globals{stdout: stdout, stderr: stderr, output: f.Output, env: env, api: api}, nil
}

// client returns the client of the server that --url and --token name.
func (g *globals) client() *client.Client { return g.api }

// getenv returns an environment variable, empty if it isn't set.
func (g *globals) getenv(name string) string {
	value, _ := g.env(name)
	return value
}
