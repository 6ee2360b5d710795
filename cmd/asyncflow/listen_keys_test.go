package main

import (
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
)

// startJob starts asyncflow listen as a job of a shell, which then runs a script.
func startJob(t *testing.T, env map[string]string, script string) *terminal {
	t.Helper()
	w := startLocalWorker(t, testWebhook)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	return startIn(t, env, "sh", "-m", "-c", script, os.Args[0], "listen", "--forward",
		w.server.URL)
}

// cooked is what stty shows of a terminal that shows keys and passes on lines.
const cooked = `(?s)\sicanon\s.*\secho\s.*`

// The terminal is as before after each way to end, and the signals of its keys work as usual.
func TestListenGivesTheTerminalBack(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, c := range map[string]struct{ key, code string }{
		"q":                  {"q", "0"},
		"Ctrl-C":             {"\x03", "0"},
		"Ctrl-D":             {"\x04", "0"},
		"Ctrl-\\":            {"\x1c", "2"},
		"an error":           {"", "1"},
		"twice Ctrl-C":       {"\x03\x03", "0|130"},
		"Ctrl-Z, then fg, q": {"\x1a", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, _, env := listened(t)
			script := `"$0" "$@"; echo "code=$?"; stty -a; echo end`
			if c.key == "\x1a" {
				script = `"$0" "$@"; echo stopped; stty -a; echo now; ` +
					`fg >&2; echo "code=$?"; stty -a; echo end`
			}
			p := startJob(t, env, script)
			p.await("listening to pipe.first")
			p.press("r") // the terminal is taken once it works
			p.await("no delivery to repeat yet")
			if c.key == "" {
				all, err := node.client().Endpoints(t.Context(), "pipe")
				require.NoError(t, err)
				require.NoError(t, node.client().DeleteEndpoint(t.Context(), all[0].ID))
			}
			p.press(c.key)
			if c.key == "\x1a" {
				p.await(`(?s)stopped.*` + cooked + `now`)
				p.press("r")
				p.await(`(?s)now.*no delivery to repeat yet`)
				p.press("q")
			}
			p.await(`(?s)code=(` + c.code + `)\s.*` + cooked + `end`)
		})
	}
}

// A job in the background works, and leaves the terminal alone until it comes to the foreground.
func TestListenInTheBackground(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	p := startJob(t, env, `"$0" "$@" & echo "job=$!"; read typed; echo "typed=$typed"; `+
		`stty -a; echo now; fg >&2; echo "code=$?"; stty -a; echo end`)
	job, err := strconv.Atoi(p.await(`job=(\d+)\r`)[1])
	require.NoError(t, err)
	t.Cleanup(func() { // the end of the shell doesn't end it
		if t.Failed() {
			_ = syscall.Kill(job, syscall.SIGKILL)
		}
	})
	p.await("listening to pipe.first")
	c := node.client()
	_, outcomes := ended(t, c, submit(t, c, `{"n": 1}`))
	require.Equal(t, "first done", outcomes)
	p.press("r\n")
	p.await(`(?s)typed=r\s.*` + cooked + "now")
	p.press("r")
	p.await(`(?s)now.*\(repeated\)`)
	p.press("q")
	p.await(`(?s)code=0\s.*` + cooked + "end")
	require.Len(t, regexp.MustCompile(`\(repeated\)`).FindAllString(p.shows(), -1), 1)
}
