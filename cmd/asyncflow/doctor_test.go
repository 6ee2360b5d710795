package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/store"
)

// adviceCommand is a command in what the doctor says to do.
var adviceCommand = regexp.MustCompile(`asyncflow ([^,;]+)`)

// The doctor says what is wrong, for people and for programs, and fails if that is a problem.
func TestDoctor(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := startNode(t, url, "--roles=api,dispatcher")
	_, err := p.client().PutTaskType(t.Context(), "mail", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "send"}}})
	require.NoError(t, err)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_URL": closedURL(t)}

	r := runCLI(t, env, "doctor", "--all")
	assert.Equal(t, exitFailed, r.code, r.stderr)
	for _, want := range []string{
		"ok       notify        NOTIFY comes through\n",
		"problem  nodes         no node has the role governance\n" +
			"                       Do: start a node with this role\n" +
			"                       See: docs/alerts.md#node_gone\n",
		"warning  endpoints     acme: the stage mail/send has no endpoint that gets deliveries",
	} {
		assert.Contains(t, r.stdout, want)
	}
	assert.Contains(t, r.stderr, "the doctor found ")

	r = runCLI(t, env, "doctor", "-o", "json")
	assert.Equal(t, exitFailed, r.code, r.stderr)
	var report checkupReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	assert.Positive(t, report.Problems)
	commands := 0
	for _, f := range report.Findings {
		assert.Equal(t, f.Level == store.FindingOK, f.Do == "", f.Text)
		for _, m := range adviceCommand.FindAllStringSubmatch(f.Do, -1) {
			commands++
			args := append(strings.Fields(m[1]), "--help")
			assert.Zero(t, runCLI(t, nil, args...).code, m[0])
			away := map[string]string{"DATABASE_URL": closedURL(t)}
			flags := runCLI(t, away, args[:len(args)-1]...)
			assert.NotContains(t, flags.stderr, "missing flags", m[0])
			assert.NotContains(t, flags.stderr, "unexpected argument", m[0])
		}
	}
	assert.Positive(t, commands)
	assert.Contains(t, report.Findings, store.Finding{Check: "nodes", Level: store.FindingProblem,
		Text: "no node has the role governance", Do: "start a node with this role",
		Page: "alerts.md#node_gone"})

	r = runCLI(t, env, "doctor", "--egress-allow", "nowhere at all")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "--egress-allow")
}

// A certificate's end is read from a host that the policy allows, and from no other.
func TestCertificateEnd(t *testing.T) {
	t.Parallel()
	worker := httptest.NewTLSServer(http.NotFoundHandler())
	defer worker.Close()
	cfg := callbacks.Config{}
	_, err := callbacks.CertificateEnd(t.Context(), cfg, worker.URL)
	require.ErrorContains(t, err, "must not reach")
	cfg.Egress.AllowPrivate = true
	end, err := callbacks.CertificateEnd(t.Context(), cfg, worker.URL)
	require.NoError(t, err)
	assert.WithinDuration(t, worker.Certificate().NotAfter, end, time.Second)
}
