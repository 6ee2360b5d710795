package httpapi_test

import (
	"context"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// walk calls each for every operation of the contract.
func walk(each func(method, path string, op *openapi3.Operation)) {
	for path, item := range contracttest.Document().Paths.Map() {
		for method, op := range item.Operations() {
			each(method, path, op)
		}
	}
}

// The routes of the server are the operations of the contract.
func TestRoutesOfTheContract(t *testing.T) {
	var cfg httpapi.Config
	setupWith(t, func(c *httpapi.Config) { cfg = *c })
	server, err := httpapi.New(cfg)
	require.NoError(t, err)
	var served, written []string
	for _, r := range server.Routes() {
		if r.Method != http.MethodHead { // there is one for each GET
			served = append(served, r.Method+" "+regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path,
				"{$1}"))
		}
	}
	walk(func(method, path string, _ *openapi3.Operation) {
		written = append(written, method+" "+path)
	})
	slices.Sort(served) // one that must come before another is there twice
	assert.ElementsMatch(t, written, slices.Compact(served))
}

// The contract lists the codes of errors.
func TestErrorCodesOfTheContract(t *testing.T) {
	t.Parallel()
	var written, listed []string
	for _, code := range httpapi.ErrorCodes() {
		written = append(written, string(code))
	}
	for _, code := range contracttest.Document().Components.Schemas["ErrorCode"].Value.Enum {
		listed = append(listed, code.(string))
	}
	assert.ElementsMatch(t, written, listed)
}

// The examples are valid, and there is one for every body.
func TestExamples(t *testing.T) {
	t.Parallel()
	doc := contracttest.Document()
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	check := func(where string, content openapi3.Content) {
		for media, m := range content {
			if strings.HasSuffix(media, "json") {
				assert.True(t, m.Example != nil || len(m.Examples) > 0 || exemplary(m.Schema.Value),
					"%s: %s has no example", where, media)
			}
		}
	}
	var checkCall func(op *openapi3.Operation)
	checkCall = func(op *openapi3.Operation) {
		if op.RequestBody != nil {
			check(op.OperationID, op.RequestBody.Value.Content)
		}
		for status, r := range op.Responses.Map() {
			check(op.OperationID+" "+status, r.Value.Content)
		}
		for _, callback := range op.Callbacks {
			for _, item := range callback.Value.Map() {
				checkCall(item.Post)
			}
		}
	}
	walk(func(_, _ string, op *openapi3.Operation) { checkCall(op) })
}

// exemplary reports whether a schema comes with an example, or is a list of values with one.
func exemplary(s *openapi3.Schema) bool {
	for _, name := range []string{"data", "deliveries"} {
		list := s.Properties[name]
		if list != nil && list.Value.Items != nil && exemplary(list.Value.Items.Value) {
			return true
		}
	}
	return s.Example != nil
}

// While the keys of a token's issuer are not loaded, every call is answered with 503.
func TestEveryCallWaitsForKeys(t *testing.T) {
	foreign := auth.DefaultConfig()
	private, _, err := auth.GenerateKey("EdDSA", "k")
	require.NoError(t, err)
	foreign.Issuer, foreign.PrivateKey, foreign.Algorithm = "https://login.example", private,
		"EdDSA"
	issuer, err := auth.NewIssuer(foreign)
	require.NoError(t, err)
	foreign.PrivateKey, foreign.JWKSURL, foreign.AllowHTTP = nil, "http://127.0.0.1:1/jwks", true
	b := setupWith(t, func(c *httpapi.Config) {
		c.Verifier, err = auth.NewVerifier(authConfig(), foreign)
		require.NoError(t, err)
	})
	b.issuer = issuer
	token := b.newToken("acme", auth.ScopeRead)
	walk(func(method, path string, op *openapi3.Operation) {
		if op.Security != nil && (len(*op.Security) == 0 ||
			(*op.Security)[0]["completionToken"] != nil) {
			return
		}
		a := b.callAs(token, method, fillPath.Replace(path), "")
		assert.Equal(t, 503, a.status, "%s %s: %s", method, path, a.body)
		assert.NotEmpty(t, a.header.Get("Retry-After"))
	})
}

var fillPath = strings.NewReplacer("{type}", "pipe", "{name}", "nightly", "{slug}", "other", "{id}",
	"pipe.9.1")

// reports are the calls about a delivery of a task, with a body.
var reports = map[string]string{"/v1/callbacks/pipe.9.1/complete": "",
	"/v1/callbacks/pipe.9.1/fail":      `{"error":"no"}`,
	"/v1/callbacks/pipe.9.1/heartbeat": "",
	"/v1/callbacks/pipe.9.1/progress":  `{"percent":1}`,
	"/v1/callbacks/pipe.9.1/snooze":    `{"retry_after":"1s"}`,
	"/v1/claims/pipe.9.1/answer":       `{"status":200}`,
	"/v1/claims/pipe.9.1/release":      ""}

// A report that fails because the database is down can be repeated.
func TestReportsWithoutADatabase(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, err := asyncflow.ParseTaskID("pipe.9.1")
	require.NoError(t, err)
	token := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: id, Seq: 1,
		Claimer: "anna", Expiry: b.store.Clock.Now().Add(time.Hour)})
	b.closeDatabase()
	for path, body := range reports {
		a := b.callAs(token, "POST", path, body)
		assert.Equal(t, 503, a.status, "%s: %s", path, a.body)
		assert.Equal(t, "unavailable", a.problem.Code)
	}
	for _, path := range []string{"/v1/tasks/pipe.9.1/results", "/v1/callbacks/pipe.9.1/input",
		"/v1/callbacks/pipe.9.1/outputs/first"} {
		assert.Equal(t, 503, b.callAs(token, "GET", path, "").status, path)
	}
	assert.Equal(t, 503, b.callAs("", "GET", "/readyz", "").status)
	assert.Equal(t, 200, b.callAs("", "GET", "/healthz", "").status)
}

// closeDatabase closes the server's connections to its database, which then accepts no others.
func (b *bundle) closeDatabase() {
	ctx := context.Background()
	cfg, err := pgx.ParseConfig(b.dbURL)
	require.NoError(b.t, err)
	name := pgx.Identifier{cfg.Database}.Sanitize()
	cfg.Database = "postgres"
	db, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(b.t, err)
	defer db.Close(ctx)
	_, err = db.Exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
	require.NoError(b.t, err)
	_, err = b.db.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity 
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	require.NoError(b.t, err)
}

// Calls about things that don't exist are answered with 404, if the contract lists that status.
func TestUnknownThings(t *testing.T) {
	b := setup(t)
	b.pipe()
	fill := strings.NewReplacer("{type}", "nothing", "{name}", "nothing", "{slug}", "nothing",
		"{id}", "pipe.1.999")
	id, err := asyncflow.ParseTaskID("pipe.9.1")
	require.NoError(t, err)
	completion := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: id, Seq: 1,
		Claimer: "anna", Expiry: b.store.Clock.Now().Add(time.Hour)})
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/task-types/{type}/release", `{"flow_key":"a"}`},
		{"GET", "/v1/tasks?type=nothing", ""},
		{"POST", "/v1/tasks/redrive", `{"type":"nothing"}`},
		{"GET", "/v1/tasks/{id}/attempts", ""},
		{"POST", "/v1/schedules/{name}/pause", ""},
		{"POST", "/v1/schedules/{name}/resume", ""},
		{"POST", "/v1/schedules/{name}/trigger", ""},
	} {
		a := b.call(c.method, fill.Replace(c.path), c.body)
		assert.Equal(t, 404, a.status, "%s %s: %s", c.method, c.path, a.body)
	}
	for path, body := range reports {
		a := b.callAs(completion, "POST", path, body)
		assert.Equal(t, 404, a.status, "%s: %s", path, a.body)
	}
}

// Every operation lists the error statuses that all operations of its kind can give.
func TestErrorsOfTheContract(t *testing.T) {
	t.Parallel()
	walk(func(_, _ string, op *openapi3.Operation) {
		want := []string{"400", "500", "default"}
		switch {
		case op.Security == nil || len(*op.Security) > 0 &&
			(*op.Security)[0]["completionToken"] == nil:
			want = append(want, "401", "403", "503")
		case len(*op.Security) > 0:
			want = append(want, "401", "503")
		}
		if op.RequestBody != nil {
			want = append(want, "413")
		}
		assert.Subset(t, slices.Collect(maps.Keys(op.Responses.Map())), want, op.OperationID)
	})
}

// A path that takes no body says so whatever the size of the body.
func TestUnwantedBodyOfAnySize(t *testing.T) {
	b := setup(t)
	a := b.call("GET", "/v1/task-types", `{"a":"`+strings.Repeat("x", 2<<20)+`"}`)
	assert.Equal(t, 400, a.status, "%s", a.body)
	assert.Equal(t, "must be empty: this call takes none", a.problem.Errors[0].Message)
}

// Things that can't be deleted or restored in their present state.
func TestConflicts(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	b.submitOne()
	assert.Equal(t, 409, b.call("DELETE", "/v1/task-types/pipe", "").status)

	assert.Equal(t, 202, b.callAs(b.adminToken(), "DELETE", "/v1/tenants/other?now=true",
		"").status)
	_, err := b.db.Exec(t.Context(),
		`UPDATE asyncflow.tenants SET dropping_at = now() WHERE slug = 'other'`)
	require.NoError(t, err)
	assert.Equal(t, 409, b.callAs(b.adminToken(), "POST", "/v1/tenants/other/restore", "").status)
}

// docs/security.md lists each call under the scope that it needs, and under no other.
func TestScopesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n### Scopes\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n### ")
	documented, needed := map[string]string{}, map[string]string{}
	scope := ""
	for line := range strings.Lines(section) {
		if name := regexp.MustCompile("^\\| `([a-z]+)` ").FindStringSubmatch(line); name != nil {
			scope = name[1]
		}
		calls := regexp.MustCompile("`([A-Z]+ /[^`]+)`").FindAllStringSubmatch(line, -1)
		for _, call := range calls {
			assert.Empty(t, documented[call[1]], "%s is listed twice", call[1])
			documented[call[1]] = scope
		}
	}
	walk(func(method, path string, op *openapi3.Operation) {
		switch scope, ok := op.Extensions["x-scope"]; {
		case ok:
			needed[method+" "+path] = scope.(string)
		case op.Security != nil && len(*op.Security) > 0 && (*op.Security)[0]["adminToken"] != nil:
			needed[method+" "+path] = "admin"
		}
	})
	require.Greater(t, len(needed), 40)
	assert.Equal(t, needed, documented)
	submits := slices.DeleteFunc(slices.Sorted(maps.Keys(needed)), func(call string) bool {
		return needed[call] != "submit"
	})
	assert.Equal(t, []string{"POST /v1/signals", "POST /v1/tasks", "POST /v1/tasks/batch"},
		submits,
		"the scope submit gives no access to the tasks of others")
}
