package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/getkin/kin-openapi/openapi3"
)

// Without a credential no call gets past the door, however its path is spelled.
func TestEveryRouteIsGuarded(t *testing.T) {
	b := setup(t)
	b.pipe()
	doc, err := openapi3.NewLoader().LoadFromData(asyncflow.OpenAPI)
	require.NoError(t, err)
	fill := strings.NewReplacer("{type}", "pipe", "{name}", "nightly", "{slug}", "other", "{id}", "pipe.1.1")
	calls := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Security != nil && len(*op.Security) == 0 {
				continue
			}
			p := fill.Replace(path)
			for _, spelled := range []string{p, p + "/", strings.ToUpper(p), strings.Replace(p, "/v1/", "/V1/", 1), "/" + p, strings.Replace(p, "/v1/", "/v1/./", 1)} {
				for _, m := range []string{method, http.MethodHead, http.MethodOptions} {
					a := b.callAs("", m, spelled, "")
					assert.Contains(t, []int{401, 404, 405}, a.status, "%s %s: %s", m, spelled, a.body)
					calls++
				}
			}
			assert.Equal(t, 401, b.callAs("", method, p, "").status, "%s %s", method, p)
		}
	}
	assert.Greater(t, calls, 200)
}

// A worker's credential is looked at before what it says.
func TestCompletionTokenComesFirst(t *testing.T) {
	b := setup(t)
	b.pipe()
	for _, call := range []string{"complete", "fail", "heartbeat", "progress"} {
		assert.Equal(t, 401, b.callAs("nothing", "POST", "/v1/callbacks/pipe.1.1/"+call, `{"wrong":1}`).status, call)
	}
}

func TestOtherMethods(t *testing.T) {
	b := setup(t)
	a := b.call("DELETE", "/v1/tasks", "")
	assert.Equal(t, 405, a.status)
	assert.Contains(t, a.header.Get("Allow"), "POST")
	assert.Equal(t, 200, b.callAs("", "HEAD", "/healthz", "").status)
}

// A packed body is refused before it is unpacked: a small one could become huge.
func TestPackedBody(t *testing.T) {
	b := setup(t)
	b.pipe()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(`{"type":"pipe","context":"` + strings.Repeat("0", 1<<20) + `"}`))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	req, err := http.NewRequest("POST", b.url+"/v1/tasks", &packed)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	a := b.do(req)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Content-Encoding", a.problem.Errors[0].Field)
}
