package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

const shopSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// on_final of a task, a type and a schedule is read back with its target, which stands for the
// secret. Nothing shows the secret.
func TestOnFinal(t *testing.T) {
	b := setup(t)
	told := fmt.Sprintf(`{"url":"https://shop.example/ended?a=1","on":["failed"],"secret":%q}`,
		shopSecret)
	target := asyncflow.TargetName("https://shop.example/", shopSecret)
	want := &api.OnFinal{URL: "https://shop.example/ended?a=1", Target: target,
		On: []asyncflow.Status{asyncflow.StatusFailed}}
	spec := `{"stages":[{"name":"only"}],"on_final":` + told + `}`
	would := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/single?dry_run=true", spec))
	assert.Equal(t, want, would.OnFinal)
	assert.Equal(t, 404, b.call("GET", "/v1/task-types/"+target, "").status, "nothing was made")
	put := b.call("PUT", "/v1/task-types/single", spec)
	made := read[api.TaskType](b, 201, put)
	assert.Equal(t, want, made.OnFinal)
	again := read[api.TaskType](b, 200, b.call("PUT", "/v1/task-types/single", spec))
	assert.Equal(t, 1, again.Version, "the same document changes nothing")
	asRead := strings.Replace(spec, fmt.Sprintf(`"secret":%q`, shopSecret),
		`"target":"`+target+`"`, 1)
	again = read[api.TaskType](b, 200, b.call("PUT", "/v1/task-types/single", asRead))
	assert.Equal(t, 1, again.Version, "the target stands for the secret")

	first := read[api.TaskType](b, 200, b.call("GET", "/v1/task-types/"+target, ""))
	assert.Equal(t, "https://shop.example", first.Notifies)
	endpoints := read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints?type="+target, ""))
	require.Len(t, endpoints.Data, 1)
	assert.Equal(t, "https://shop.example/ended?a=1", endpoints.Data[0].URL)
	stored, err := b.store.Endpoint(t.Context(), "acme", endpoints.Data[0].ID)
	require.NoError(t, err)
	opened, err := b.keys.Open(stored.Secrets[0].Sealed, stored.ID)
	require.NoError(t, err)
	assert.Equal(t, shopSecret, opened)

	schedule := read[api.Schedule](b, 201, b.call("PUT", "/v1/schedules/nightly",
		`{"type":"single","context":1,"cron":"@daily","on_final":`+told+`}`))
	assert.Equal(t, want, schedule.OnFinal)
	ran := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/schedules/nightly/trigger", ""))
	own := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"single","context":1,"on_final":{"url":"https://shop.example/own"}}`))
	plain := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"single","context":1}`))
	for id, is := range map[string]*api.OnFinal{ran.ID: want, plain.ID: want,
		own.ID: {URL: "https://shop.example/own",
			Target: asyncflow.TargetName("https://shop.example", "")}} {
		assert.Equal(t, is, read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).OnFinal)
	}
	batch := read[api.SubmittedBatch](b, 201, b.call("POST", "/v1/tasks/batch",
		`{"tasks":[{"type":"single","context":1,"on_final":{"url":"https://shop.example/b"}},
		  {"type":"single","context":1,"on_final":{"url":"https://10.0.0.1/"}}]}`)).Tasks
	assert.NotEmpty(t, batch[0].Task.ID)
	assert.Equal(t, "tasks[1].on_final.url", batch[1].Error.Errors[0].Field)

	audit := b.call("GET", "/v1/audit?action=target.create", "")
	entries := read[api.AuditList](b, 200, audit)
	require.Len(t, entries.Data, 2)
	assert.Equal(t, []any{"test", "https://shop.example"},
		[]any{entries.Data[0].Subject, entries.Data[0].Detail["origin"]})
	puts := b.call("GET", "/v1/audit", "")
	for _, shown := range []answer{put, puts, audit, b.call("GET", "/v1/task-types", ""),
		b.call("GET", "/v1/endpoints", ""), b.call("GET", "/v1/schedules/nightly", "")} {
		assert.NotContains(t, string(shown.body), shopSecret[6:])
	}
	var rows int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM tenant_acme.task_1 WHERE options::text LIKE $1)
		+ (SELECT count(*) FROM tenant_acme.task_types WHERE spec::text LIKE $1)
		+ (SELECT count(*) FROM tenant_acme.schedules WHERE spec::text LIKE $1)`,
		"%"+shopSecret[6:]+"%").Scan(&rows))
	assert.Zero(t, rows, "it is in the target only")
}

func TestOnFinalRefused(t *testing.T) {
	b := setup(t)
	b.single()
	before := b.contents()
	for onFinal, says := range map[string][2]string{
		`{}`:                                  {"on_final.url", "is required"},
		`{"url":""}`:                          {"on_final.url", "is required"},
		`7`:                                   {"on_final", "must be an object"},
		`{"url":"http://shop.example/"}`:      {"on_final.url", "https"},
		`{"url":"https://127.0.0.1/"}`:        {"on_final.url", ""},
		`{"url":"https://169.254.169.254/"}`:  {"on_final.url", ""},
		`{"url":"https://u:p@shop.example/"}`: {"on_final.url", "user"},
		`{"url":"https://shop.example/#a"}`:   {"on_final.url", "fragment"},
		`{"url":"https://shop.example/` + strings.Repeat("x", 1024) + `"}`: {"on_final.url",
			"the limit is 1024"},
		`{"url":"https://shop.example/` + strings.Repeat("&", 600) + `"}`: {"on_final.url",
			"takes 3623 bytes in JSON"},
		`{"url":"https://shop.example/","on":["lost"]}`: {"on_final.on[0]", "succeeded, failed"},
		`{"url":"https://shop.example/","on":["failed","failed"]}`: {"on_final.on[1]",
			"is failed again"},
		`{"url":"https://shop.example/","secret":"hush"}`: {"on_final.secret",
			"must start with whsec_"},
		`{"url":"https://shop.example/","secret":"whsec_AAAA"}`: {"on_final.secret",
			"it must be 24 to 64"},
		`{"url":"https://shop.example/","target":"single"}`: {"on_final.target", "is \"single\""},
		`{"url":"https://shop.example/","target":"asyncflow-final-0123456789abcdef"}`: {
			"on_final.target", "which doesn't exist"},
		`{"url":"https://shop.example/","target":"asyncflow-final-0123456789abcdef","secret":"` +
			shopSecret + `"}`: {"on_final.secret", "exclude each other"},
	} {
		a := b.call("POST", "/v1/tasks", `{"type":"single","context":1,"on_final":`+onFinal+`}`)
		require.Equal(t, 400, a.status, "%s: %s", onFinal, a.body)
		assert.Equal(t, says[0], a.problem.Errors[0].Field, onFinal)
		assert.Contains(t, a.problem.Errors[0].Message, says[1], onFinal)
		assert.NotContains(t, string(a.body), "hush")
	}
	assert.Equal(t, before, b.contents(), "nothing was made")
	for _, call := range [][2]string{
		{"/v1/task-types/single", `{"stages":[{"name":"only"}],"on_final":{"url":"ftp://x"}}`},
		{"/v1/schedules/s", `{"type":"single","context":1,"every":"1h","on_final":{"url":""}}`},
		{"/v1/task-types/asyncflow-final-mine", `{"stages":[{"name":"send"}]}`},
	} {
		assert.Equal(t, 400, b.call("PUT", call[0], call[1]).status, call[0])
	}
	assert.Equal(t, before, b.contents(), "nothing was made")
	submitOnly := b.newToken("acme", auth.ScopeSubmit)
	a := b.callAs(submitOnly, "POST", "/v1/tasks",
		`{"type":"single","context":1,"on_final":{"url":"https://shop.example/"}}`)
	assert.Equal(t, 403, a.status, "it would read the result")
	assert.Contains(t, a.problem.Detail, `the scope "read"`)
	assert.Equal(t, before, b.contents(), "nothing was made")
}

// With challenges, a target gets nothing until its URL echoes one.
func TestOnFinalChallenged(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.VerifyEndpoints = true })
	b.single()
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"single","context":1,"on_final":{"url":"https://shop.invalid/"}}`))
	list := read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints?type="+
		asyncflow.TargetName("https://shop.invalid", ""), ""))
	require.Len(t, list.Data, 1)
	assert.NotEmpty(t, list.Data[0].VerificationError)
}
