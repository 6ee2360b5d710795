package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
)

// configured is something with an ETag.
type configured struct {
	path, method, token string
	body                func(n int) string // of a change; each n is another one
}

// configuration makes one of each thing with an ETag, and returns them.
func (b *bundle) configuration() []configured {
	b.t.Helper()
	b.pipe()
	read[api.Tenant](b, 201, b.admin("POST", "/v1/tenants", `{"slug":"globex"}`))
	endpoint := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/"}`))
	all := []configured{
		{"/v1/schedules/nightly", "PUT", b.token, func(n int) string {
			return fmt.Sprintf(`{"type":"pipe","context":%d,"cron":"@daily"}`, n)
		}},
		{"/v1/alerts", "PUT", b.token, func(n int) string {
			return fmt.Sprintf(`{"url":"https://ops.example.com/","rules":{"backlog_age":"%ds"}}`,
				100+n)
		}},
		{"/v1/endpoints/" + endpoint.ID, "PATCH", b.token, func(n int) string {
			return fmt.Sprintf(`{"weight":%d}`, n)
		}},
		{"/v1/tenants/globex", "PATCH", b.adminToken(), func(n int) string {
			return fmt.Sprintf(`{"quotas":{"concurrency":%d}}`, n)
		}},
		{"/v1/task-types/other", "PUT", b.token, func(n int) string {
			return fmt.Sprintf(`{"stages":[{"name":"only","timeout":"%ds"}]}`, n)
		}},
	}
	for _, c := range all {
		if c.method == "PUT" {
			a := b.change(c, c.method, c.body(1), "If-None-Match", "*")
			require.Less(b.t, a.status, 300, "%s: %s", c.path, a.body)
		}
	}
	return all
}

// change makes a call with a header.
func (b *bundle) change(c configured, method, body, header, value string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+c.path,
		strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set(header, value)
	return b.do(req)
}

// A change with the ETag of what was read is made only as long as nobody else made one.
func TestIfMatch(t *testing.T) {
	b := setup(t)
	all := b.configuration()
	assert.Equal(t, 2*len(all)+1, strings.Count(string(asyncflow.OpenAPI), "parameters/IfMatch\""),
		"all that take the header are here, but tasks (TestIfMatchOfATask)")
	for _, c := range all {
		etag := func() string {
			a := b.callAs(c.token, "GET", c.path, "")
			require.Equal(t, 200, a.status, c.path)
			require.Regexp(t, `^"[\w-]{16}"$`, a.header.Get("ETag"), c.path)
			return a.header.Get("ETag")
		}
		refused := func(a answer, etag string) {
			t.Helper()
			require.Equal(t, 412, a.status, "%s: %s", c.path, a.body)
			assert.Equal(t, "precondition_failed", a.problem.Code)
			assert.Equal(t, etag, a.header.Get("ETag"))
		}
		first := etag()
		refused(b.change(c, c.method, c.body(2), "If-Match", `"nobody"`), first)
		refused(b.change(c, c.method, c.body(2), "If-Match", "W/"+first), first)
		a := b.change(c, c.method, c.body(2), "If-Match", `"nobody", `+first)
		require.Equal(t, 200, a.status, "%s: %s", c.path, a.body)
		second := a.header.Get("ETag")
		assert.NotEqual(t, first, second, c.path)
		assert.Equal(t, second, etag(), c.path)
		refused(b.change(c, c.method, c.body(3), "If-Match", first), second)
		assert.Equal(t, 200, b.change(c, c.method, c.body(3), "If-Match", "*").status)
		for _, bad := range []string{"nobody", `"a" "b"`, `"a",`} {
			a = b.change(c, c.method, c.body(4), "If-Match", bad)
			require.Equal(t, 400, a.status, "%s: %s", c.path, a.body)
			assert.Equal(t, "If-Match", a.problem.Errors[0].Field)
		}
		third := etag()
		if c.method == "PUT" {
			refused(b.change(c, "PUT", c.body(3), "If-None-Match", "*"), third)
		}
		assert.Equal(t, 400, b.change(c, c.method, c.body(3), "If-None-Match", third).status)
		refused(b.change(c, "DELETE", "", "If-Match", second), third)
		assert.Equal(t, 400, b.change(c, "DELETE", "", "If-None-Match", "*").status)
		a = b.change(c, "DELETE", "", "If-Match", third)
		require.Less(t, a.status, 300, "%s: %s", c.path, a.body)
		if c.method == "PUT" {
			refused(b.change(c, "PUT", c.body(1), "If-Match", "*"), "")
		}
	}
}

// A document that was applied already is a success: the answer to the first call may have been
// lost. A dry run, which shows what isn't so, has no ETag.
func TestIfMatchOfTheSameAgain(t *testing.T) {
	b := setup(t)
	for _, c := range b.configuration() {
		if !strings.HasPrefix(c.path, "/v1/task-types/") &&
			!strings.HasPrefix(c.path, "/v1/schedules/") {
			continue
		}
		before := b.callAs(c.token, "GET", c.path, "").header.Get("ETag")
		for range 2 {
			require.Equal(t, 200, b.change(c, "PUT", c.body(2), "If-Match", before).status, c.path)
		}
		c.path += "?dry_run=true"
		assert.Equal(t, 412, b.change(c, "PUT", c.body(3), "If-Match", before).status)
		a := b.callAs(c.token, "PUT", c.path, c.body(3))
		assert.Equal(t, []any{200, ""}, []any{a.status, a.header.Get("ETag")})
	}
}

// Of changes that are made at the same time from the same state, one wins.
func TestIfMatchAtOnce(t *testing.T) {
	b := setup(t)
	for _, c := range b.configuration() {
		etag := b.callAs(c.token, "GET", c.path, "").header.Get("ETag")
		statuses := make(chan int)
		for n := range 4 {
			go func() { statuses <- b.change(c, c.method, c.body(2+n), "If-Match", etag).status }()
		}
		count := map[int]int{}
		for range 4 {
			count[<-statuses]++
		}
		assert.Equal(t, map[int]int{200: 1, 412: 3}, count, c.path)
	}
}

// Each answer that shows something with an ETag names it, and the contract says so: a caller can
// change what it just made without reading it again.
func TestETagsOfAnswers(t *testing.T) {
	contract := contracttest.Document()
	said := 0
	for path, item := range contract.Paths.Map() {
		for method, o := range item.Operations() {
			for status, r := range o.Responses.Map() {
				if !showsConfigured(r.Value) {
					continue
				}
				said++
				assert.Contains(t, r.Value.Headers, "ETag", "%s %s %s", method, path, status)
			}
		}
	}
	require.Positive(t, said)

	b := setup(t)
	all := b.configuration()
	calls := 0
	same := func(token, path string, a answer) {
		t.Helper()
		calls++
		require.Less(t, a.status, 300, "%s: %s", path, a.body)
		now := b.callAs(token, "GET", path, "").header.Get("ETag")
		require.NotEmpty(t, now, path)
		assert.Equal(t, now, a.header.Get("ETag"), path)
	}
	for _, c := range all {
		same(c.token, c.path, b.callAs(c.token, c.method, c.path, c.body(5)))
	}
	schedule, endpoint, tenant, taskType := all[0].path, all[2].path, all[3].path, all[4].path
	for _, path := range []string{schedule, taskType} {
		same(b.token, path, b.call("POST", path+"/pause", ""))
		same(b.token, path, b.call("POST", path+"/resume", ""))
	}
	for _, call := range []string{"/verify", "/enable", "/rotate-secret"} {
		same(b.token, endpoint, b.call("POST", endpoint+call, ""))
	}
	same(b.adminToken(), tenant, b.admin("DELETE", tenant, ""))
	same(b.adminToken(), tenant, b.admin("POST", tenant+"/restore", ""))
	same(b.adminToken(), "/v1/tenants/initech",
		b.admin("POST", "/v1/tenants", `{"slug":"initech"}`))
	a := b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"second","url":"https://w.example.com/"}`)
	same(b.token, "/v1/endpoints/"+read[api.Endpoint](b, 201, a).ID, a)
	const byReading, created = 5, 2 // GETs, and the 201s of PUT
	assert.Equal(t, said, calls+byReading+created, "all that the contract names are here")
}

// showsConfigured reports whether a response shows something with an ETag.
func showsConfigured(r *openapi3.Response) bool {
	content := r.Content.Get("application/json")
	if content == nil {
		return false
	}
	name := strings.TrimPrefix(content.Schema.Ref, "#/components/schemas/")
	return slices.Contains([]string{"TaskType", "Schedule", "Endpoint", "Alerts", "Tenant"}, name)
}
