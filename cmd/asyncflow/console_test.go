package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// An open console says that its node is gone, keeps what it shows, and goes on with the next one.
func TestConsoleOverARestart(t *testing.T) {
	longform.Costly(t)
	page := browsertest.Open(t)
	t.Parallel()
	url := database(t)
	first := startNode(t, url)
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, first.client(), oneStage())
	page.Go(first.url + "/console")
	page.Fill("Token", testToken(t))
	page.Click("Log in")
	page.See("pipe – – 0 0 0")

	first.halt(syscall.SIGKILL)
	page.See("The server can't be reached.")
	page.See("pipe – – 0 0 0")
	second := startNode(t, url, "--listen="+strings.TrimPrefix(first.url, "http://"))
	page.Gone("The server can't be reached.")
	task, err := second.client().Submit(t.Context(), client.NewTask{Type: "pipe",
		Context: client.JSON(`1`)})
	require.NoError(t, err)
	_, err = second.client().Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	page.See("– 0 1") // nothing is due, none wait, one succeeded
}
