package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Every filter of a list, but text, is one of each bulk call, which shows it as it was given.
func TestEveryFilterOfEveryBulkCall(t *testing.T) {
	b := setup(t)
	b.pipe()
	values := map[string]string{"status": `"failed"`, "stage": `"first"`, "error": `"no"`,
		"code": `"503"`, "key": `"k"`, "flow_key": `"f"`, "worker": `"w"`, "attempts": `3`,
		"since": `"2026-11-21T10:00:00Z"`, "until": `"2026-11-21T10:00:00Z"`,
		"ended_since": `"2026-11-21T10:00:00Z"`, "ended_until": `"2026-11-21T10:00:00Z"`,
		"fingerprint": `"0123456789abcdef"`, "parent": `"pipe.1.1"`, "children": `false`,
		"user": `"u"`, "tags": `"a"`, "any_tags": `"a,b"`, "metadata": `"a=b"`}
	live := map[string]string{"cancel": "", "priority": `,"priority":1`, "delay": `,"delay":"1h"`}
	final := map[string]string{"redrive": "", "rerun": `,"status":"failed"`, "erase": ""}
	doc, err := openapi3.NewLoader().LoadFromData(asyncflow.OpenAPI)
	require.NoError(t, err)
	for _, p := range doc.Paths.Find("/v1/tasks").Get.Parameters {
		name := p.Value.Name
		switch name {
		case "type", "text", "order", "reverse", "limit", "cursor", "latest":
			continue
		}
		value, ok := values[name]
		require.True(t, ok, "the filter %s has no value in this test", name)
		for path, more := range final {
			b.filters(t, path, name, value, more)
		}
		for path, more := range live {
			switch {
			case strings.HasPrefix(name, "ended_"):
				assert.Equal(t, 400, b.call("POST", "/v1/tasks/"+path,
					fmt.Sprintf(`{"type":"pipe",%q:%s%s}`, name, value, more)).status,
					"%s %s", path, name)
				continue
			case name == "status":
				value = `"waiting"`
			}
			b.filters(t, path, name, value, more)
		}
	}
}

// filters makes a bulk call with a filter, which must have it.
func (b *bundle) filters(t *testing.T, path, name, value, more string) {
	t.Helper()
	if strings.Contains(more, `"`+name+`"`) {
		more = ""
	}
	if path == "rerun" && name == "children" { // it leaves them out by itself
		return
	}
	t.Run(path+" "+name, func(t *testing.T) {
		a := b.call("POST", "/v1/tasks/"+path,
			fmt.Sprintf(`{"type":"pipe",%q:%s%s}`, name, value, more))
		require.Equal(t, 202, a.status, "%s", a.body)
		var o struct{ Filter map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal(a.body, &o))
		assert.Equal(t, value, string(o.Filter[name]))
	})
}
