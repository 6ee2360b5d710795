package httpapi_test

import (
	"encoding/json"
	"regexp"
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
