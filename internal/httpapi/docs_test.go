package httpapi_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
)

func TestOpenAPIAsJSON(t *testing.T) {
	b := setup(t)
	a := b.callAs("", "GET", "/openapi.json", "")
	var got, want any
	require.NoError(t, json.Unmarshal(a.body, &got))
	require.NoError(t, yaml.Unmarshal(asyncflow.OpenAPI, &want))
	assert.Equal(t, want, got)
	_, err := openapi3.NewLoader().LoadFromData(a.body)
	require.NoError(t, err)
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/docs"} {
		assert.Equal(t, 400, b.callAs("", "GET", path+"?x=1", "").status)
	}
	assert.Equal(t, 400, b.callAs("", "GET", "/readyz?x=1", "").status)
}

// The page has every call, the callbacks among them, and each of its links leads to
// something on it.
func TestDocs(t *testing.T) {
	b := setup(t)
	a := b.callAs("", "GET", "/docs", "")
	require.Equal(t, 200, a.status)
	page := string(a.body)
	assert.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
	walk(func(_, path string, op *openapi3.Operation) {
		assert.Contains(t, page, `<article id="`+op.OperationID+`">`)
		assert.Contains(t, page, `<code>`+path+`</code>`)
		for _, callback := range op.Callbacks {
			for _, item := range callback.Value.Map() {
				assert.Contains(t, page, `<article id="`+item.Post.OperationID+`" class="callback">`)
			}
		}
	})
	links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1)
	assert.Greater(t, len(links), 200)
	for _, link := range links {
		if anchor, ok := strings.CutPrefix(link[1], "#"); ok {
			assert.Contains(t, page, ` id="`+anchor+`"`)
		} else {
			assert.Equal(t, 200, b.callAs("", "GET", "/"+link[1], "").status)
		}
	}
}

// docs/security.md has each call under the scope that it needs, and no other.
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
		for _, call := range regexp.MustCompile("`([A-Z]+ /[^`]+)`").FindAllStringSubmatch(line, -1) {
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
	submits := slices.DeleteFunc(slices.Sorted(maps.Keys(needed)), func(call string) bool { return needed[call] != "submit" })
	assert.Equal(t, []string{"POST /v1/tasks", "POST /v1/tasks/batch"}, submits, "whoever may submit may touch no other's task")
}
