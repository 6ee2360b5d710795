package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	g := &globals{stdout: &out}
	require.NoError(t, g.printTable("ID ERROR",
		[][]string{{"a", ""}, {"long-id", "evil\x1b[2J\ttext\nline"},
			{"c", strings.Repeat("é", 200)}}))
	require.Equal(t, "ID       ERROR\n"+
		"a        -\n"+
		"long-id  evil�[2J text line\n"+
		"c        "+strings.Repeat("é", 99)+"…\n", out.String())
	out.Reset()
	require.NoError(t, g.printFields("id", "a", "error", "", "finished", "now"))
	require.Equal(t, "id        a\nfinished  now\n", out.String())
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	g := &globals{stdout: &out}
	require.NoError(t, g.printJSON(asList[string](nil, "")))
	require.Equal(t, "{\n  \"data\": []\n}\n", out.String())
	out.Reset()
	require.NoError(t, g.printJSON(asList([]string{"<&>"}, "next")))
	require.Equal(t, "{\n  \"data\": [\n    \"<&>\"\n  ],\n  \"next_cursor\": \"next\"\n}\n",
		out.String())
}

// There is no character in a document that a terminal could take for a command, or that changes the
// order in which others are shown. It means the same.
func TestJSONIsPrintable(t *testing.T) {
	t.Parallel()
	text := "C1 \u009b2J \u0085 DEL \x7f bidi \u202e\u2066\u200f tag \U000e0041 é 日本 😀"
	var out bytes.Buffer
	g := &globals{stdout: &out}
	require.NoError(t, g.printJSON(map[string]any{text: json.RawMessage(`"` + text + `"`)}))
	require.NoError(t, g.printJSONLine([]string{text}))
	for _, r := range out.String() {
		require.True(t, unicode.IsPrint(r) || r == '\n', "%U", r)
	}
	require.Contains(t, out.String(), "é 日本 😀")
	docs := json.NewDecoder(&out)
	var fields map[string]string
	require.NoError(t, docs.Decode(&fields))
	require.Equal(t, map[string]string{text: text}, fields)
	var line []string
	require.NoError(t, docs.Decode(&line))
	require.Equal(t, []string{text}, line)
}

func TestTimeText(t *testing.T) {
	t.Parallel()
	require.Empty(t, timeText(time.Time{}))
	require.Equal(t, "2026-11-21T09:00:00.120Z",
		timeText(time.Date(2026, 11, 21, 10, 0, 0, 120_000_000, time.FixedZone("", 3600))))
}

func TestMoment(t *testing.T) {
	t.Parallel()
	var m timeFlag
	require.NoError(t, m.UnmarshalText([]byte("2026-11-21T10:00:00Z")))
	require.Equal(t, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC), m.Time)
	require.NoError(t, m.UnmarshalText([]byte("1h")))
	require.WithinDuration(t, time.Now().Add(-time.Hour), m.Time, time.Minute)
	require.Error(t, m.UnmarshalText([]byte("-1h")))
}

func TestDevDefaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dev.json")
	_, ok := runningDev(file)
	require.False(t, ok)
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(`{"url": "http://127.0.0.1:1", "token": "t", "pid": ` + strconv.Itoa(os.Getpid()) + `}`)
	f, ok := runningDev(file)
	require.True(t, ok)
	require.Equal(t, []string{"http://127.0.0.1:1", "t"}, []string{f.URL, f.Token})
	for _, text := range []string{"", "{", `{"url": "http://127.0.0.1:1", "pid": 0}`,
		`{"url": "http://127.0.0.1:1", "pid": 2147483646}`,
		`{"pid": ` + strconv.Itoa(os.Getpid()) + `}`} {
		write(text)
		_, ok = runningDev(file)
		require.False(t, ok, text)
	}
}

func TestTokenCreate(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": defaultURL, "ASYNCFLOW_JWT_SECRET": testJWTSecret,
		"ASYNCFLOW_JWT_ISSUER": "me"}
	r := runCLI(t, env, "token", "create", "--tenant", "acme", "--ttl", "2h", "--subject", "ci")
	require.Zero(t, r.code, r.stderr)
	cfg := auth.DefaultConfig()
	cfg.HMACSecret, cfg.Issuer = []byte(testJWTSecret), "me"
	v, err := auth.NewVerifier(cfg)
	require.NoError(t, err)
	p, err := v.Verify(t.Context(), strings.TrimSuffix(r.stdout, "\n"), time.Now())
	require.NoError(t, err)
	require.Equal(t, "acme", p.Tenant)
	require.Equal(t, "ci", p.Subject)
	require.Equal(t, auth.NewScopes(auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate,
		auth.ScopeManage), p.Scopes)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), p.ExpiresAt, time.Minute)

	r = runCLI(t, env, "token", "create", "--admin", "--subject", "alice")
	require.Zero(t, r.code, r.stderr)
	p, err = v.Verify(t.Context(), strings.TrimSuffix(r.stdout, "\n"), time.Now())
	require.NoError(t, err)
	require.Equal(t, []any{auth.KindOperator, "", "alice", "admin"},
		[]any{p.Kind, p.Tenant, p.Subject, p.Scopes.String()})

	for _, args := range [][]string{{"--tenant", "ACME"}, {"--tenant", "acme", "--scope", "fly"},
		{"--tenant", "acme", "--ttl", "0s"},
		{}, {"--admin", "--tenant", "acme"}, {"--admin", "--scope", "read"},
		{"--tenant", "acme", "--scope", "admin"}, {"--admin", "--ttl", "-1s"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			r := runCLI(t, env, append([]string{"token", "create"}, args...)...)
			require.Equal(t, exitUsage, r.code)
			require.Empty(t, r.stdout)
		})
	}
	env["ASYNCFLOW_JWT_PRIVATE_KEY_FILE"] = "/does/not/exist"
	require.Contains(t, runCLI(t, env, "token", "create", "--tenant", "acme").stderr,
		"set one of ASYNCFLOW_JWT_SECRET, ASYNCFLOW_JWT_SECRET_FILE and "+
			"ASYNCFLOW_JWT_PRIVATE_KEY_FILE")
	env["ASYNCFLOW_JWT_SECRET"] = ""
	require.Contains(t, runCLI(t, env, "token", "create", "--tenant", "acme").stderr,
		"no such file")
}
