package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// A duration is written with a unit in either format.
func TestLogsGiveDurationsAUnit(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	newLog(&globals{stderr: &text}, "text", slog.LevelInfo).Info("x", "duration",
		1500*time.Microsecond)
	require.Contains(t, text.String(), "duration=1.5ms")

	var line bytes.Buffer
	newLog(&globals{stderr: &line}, "json", slog.LevelInfo).Info("x", "duration",
		1500*time.Microsecond)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(line.Bytes(), &fields))
	require.Equal(t, 1.5, fields["duration_ms"])
	require.NotContains(t, fields, "duration")
}

// The log lines of attempts say what their tasks are about, whichever way an attempt ends: by an
// answer, by a report to another node, or with the end of its lease.
func TestAttemptsAreLoggedWithLabels(t *testing.T) {
	t.Parallel()
	url := database(t)
	nodes := []*process{startNode(t, url), startNode(t, url, "--roles=api")}
	c := nodes[0].client()
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if string(d.Context) == `"refused"` {
			rw.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		rw.WriteHeader(http.StatusAccepted)
		if string(d.Context) == `"later"` {
			d.Callback.URL = nodes[1].url + d.Callback.URL[strings.Index(d.Callback.URL, "/v1/"):]
			go complete(t, d) // at the node that didn't send it
		}
	})
	w.pipe(t, c, oneStage())
	brief := oneStage() // that forgets a worker that took a task and says nothing
	brief.Stages[0].MaxProcessingTime = client.NewDuration(time.Second)
	_, err := c.PutTaskType(t.Context(), "brief", brief)
	require.NoError(t, err)
	_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "brief", Stage: "only",
		URL: w.URL, Secret: testWebhook})
	require.NoError(t, err)
	for context, outcome := range map[string]string{"refused": "failed", "later": "done",
		"silent": "lost"} {
		name, took := "pipe", `\S+`
		if context == "silent" {
			name, took = "brief", `[1-9][0-9.ms]*`
		}
		task, err := c.Submit(t.Context(), client.NewTask{Type: name,
			Context: client.JSON(strconv.Quote(context)), User: "ada", Tags: []string{"eu"},
			Metadata: map[string]string{"order": "4711"},
			Trace:    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
		require.NoError(t, err)
		line := regexp.MustCompile(`msg=attempt .*task=` + regexp.QuoteMeta(task.ID) +
			` .*outcome=` + outcome + ` .*duration=` + took + ` .*user=ada .*eu.*order.*4711.*` +
			`trace_id=4bf92f3577b34da6a3ce929d0e0e4736`)
		require.Eventually(t, func() bool {
			return line.MatchString(nodes[0].said() + nodes[1].said())
		}, patience, 20*time.Millisecond, context)
	}
}

// A failure that goes on is one line of a node's log, unless the log is for debugging; a line that
// stands for one thing of its own is always written. These messages are still in the program.
func TestLogsCountRepeats(t *testing.T) {
	t.Parallel()
	lines := func(level slog.Level, message string) int {
		var text bytes.Buffer
		log, stop := countRepeats(newLog(&globals{stderr: &text}, "text", level))
		for range 3 {
			log.Warn(message, "error", "away")
		}
		stop()
		return strings.Count(text.String(), "\n")
	}
	require.Equal(t, 2, lines(slog.LevelInfo, "lease failed, trying again"),
		"the first line, and the count at the end")
	require.Equal(t, 3, lines(slog.LevelDebug, "lease failed, trying again"))
	var sources strings.Builder
	for _, file := range []string{"log.go", "governance/alerts.go", "dispatcher/settle.go",
		"internal/httpapi/audit_call.go", "internal/httpapi/internal/deniedcalls/deniedcalls.go"} {
		source, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		sources.Write(source)
	}
	for _, message := range uncounted {
		require.Equal(t, 3, lines(slog.LevelInfo, message))
		require.Contains(t, sources.String(), strconv.Quote(message))
	}
}
