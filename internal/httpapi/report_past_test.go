package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

// A claim carries what its stage asks for, byte for byte. In place of what is too long stands its
// URL, which the token of the delivery opens while the attempt lasts.
func TestDocumentsByURL(t *testing.T) {
	b := setup(t)
	put := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"look","mode":"claim"},
		  {"name":"decide","mode":"claim","deliver":{"input":true,"outputs":["look","decide"]}}],
		  "max_deliver_bytes":100}`))
	shown := read[api.TaskType](b, 200, b.call("GET", "/v1/task-types/judge", ""))
	assert.Equal(t, put, shown)
	assert.True(t, shown.Stages[1].Deliver.Input)
	assert.Equal(t, 100, shown.MaxDeliverBytes)

	input := `{"b": 1.0, "a": "<é>` + strings.Repeat("x", 500) + `"}`
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"judge","context":`+input+`}`)).ID
	first := b.claim("anna", `,"wait":"1m"`)[0]
	assert.Nil(t, first.Input)
	path := "/v1/callbacks/" + id
	refused := b.callAs(first.Callback.Token, "GET", path+"/input", "")
	require.Equal(t, 403, refused.status)
	assert.Contains(t, string(refused.body), "stage look of judge doesn't ask for this")
	require.Equal(t, 200, b.report(first, "complete", `{"output":{"n": 1.0}}`).status)

	second := b.claimFrom("decide", "anna", `,"wait":"1m"`)[0]
	assert.Equal(t, []string{"input"}, second.ByURL)
	var link struct {
		URL   string `json:"url"`
		Bytes int    `json:"bytes"`
	}
	require.NoError(t, json.Unmarshal(second.Input, &link))
	assert.Equal(t, len(input), link.Bytes)
	assert.True(t, strings.HasSuffix(link.URL, path+"/input"), link.URL)
	assert.Equal(t, map[string]json.RawMessage{"look": []byte(`{"n": 1.0}`), "decide": []byte(`null`)},
		second.Outputs)
	token := second.Callback.Token
	for path, want := range map[string]string{path + "/input": input,
		path + "/outputs/look": `{"n": 1.0}`} {
		a := b.callAs(token, "GET", path, "")
		assert.Equal(t, []any{200, want}, []any{a.status, string(a.body)}, path)
	}
	assert.Equal(t, 404, b.callAs(token, "GET", path+"/outputs/decide", "").status)
	assert.Equal(t, 403, b.callAs(token, "GET", path+"/outputs/other", "").status)
	assert.Equal(t, 401, b.callAs(token, "GET", "/v1/callbacks/judge.1.99/input", "").status)
	assert.Equal(t, 401, b.call("GET", path+"/input", "").status)

	for suspended, want := range map[string]int{`{"suspended":true,"reason":"unpaid"}`: 403,
		`{"suspended":false}`: 200} {
		require.Equal(t, 200,
			b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme", suspended).status)
		assert.Equal(t, want, b.callAs(token, "GET", path+"/input", "").status)
	}
	require.Equal(t, 200, b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme",
		`{"suspended":false}`).status)
	require.Equal(t, 200, b.report(second, "complete", `{}`).status)
	assert.Equal(t, 409, b.callAs(token, "GET", path+"/input", "").status)
	require.Equal(t, 204, b.call("DELETE", "/v1/task-types/judge?cascade=true", "").status)
	assert.Equal(t, 404, b.callAs(token, "GET", path+"/input", "").status)
}

// What a type says about what its stages are given is checked, and each fault names its field.
func TestDeliverIsChecked(t *testing.T) {
	b := setup(t)
	for spec, want := range map[string]string{
		`{"stages":[{"name":"a","deliver":{"outputs":["b"]}}]}`:     `which is not a stage of the type`,
		`{"stages":[{"name":"a","deliver":{"outputs":["a","a"]}}]}`: ` twice`,
		`{"stages":[{"name":"a","deliver":{"input":false}}]}`:       `neither input nor outputs`,
		`{"stages":[{"name":"a","deliver":{}}]}`:                    `deliver`,
		`{"stages":[{"name":"a"}],"max_deliver_bytes":1048577}`:     `max_deliver_bytes`,
		`{"stages":[{"name":"a"}],"max_deliver_bytes":-1}`:          `max_deliver_bytes`,
	} {
		a := b.call("PUT", "/v1/task-types/judge", spec)
		assert.Equal(t, 400, a.status, spec)
		assert.Contains(t, string(a.body), want, spec)
	}
	plain := b.call("PUT", "/v1/task-types/judge", `{"stages":[{"name":"a"}]}`)
	assert.NotContains(t, string(plain.body), "deliver")
	asks := read[api.TaskType](b, 200, b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"a","deliver":{"input":true}}]}`))
	assert.Equal(t, 1<<20, asks.MaxDeliverBytes)
}
