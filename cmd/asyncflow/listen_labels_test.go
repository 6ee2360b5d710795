package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Tasks with rules come only to a listener with their labels. What it may not get costs it nothing,
// and no other task waits behind it.
func TestListenWithLabels(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	w := startLocalWorker(t, testWebhook)
	c := node.client()
	p := startTerminal(t, env, "--forward", w.server.URL, "--label", "lang=fr")
	p.await("listening to pipe.first") // so there may be rules in the type
	ruled := func(doc string, labels map[string]string) string {
		task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: client.JSON(doc),
			Claim: &asyncflow.ClaimRules{Labels: labels}})
		require.NoError(t, err)
		return task.ID
	}
	german := ruled(`{"n": 1}`, map[string]string{"lang": "de", "level": "2"})
	french := ruled(`{"n": 2}`, map[string]string{"lang": "fr"})
	free := submit(t, c, `{"n": 3}`)
	for _, id := range []string{french, free} {
		_, outcomes := ended(t, c, id)
		require.Equal(t, "first done", outcomes)
	}
	task, err := c.Get(t.Context(), german)
	require.NoError(t, err)
	require.Equal(t, "claimer", string(task.WaitsFor))
	require.NotContains(t, w.did(), 1)
	p.press("q")
	require.Zero(t, p.ends())

	p = startTerminal(t, env, "--forward", w.server.URL, "--label", "lang=de", "--label",
		"lang=fr", "--label", "level=2")
	_, outcomes := ended(t, c, german)
	require.Equal(t, "first done", outcomes)
	p.press("q")
	require.Zero(t, p.ends())

	r := runCLI(t, env, "listen", "--forward", w.server.URL, "--label", "lang")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--label")
}
