package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
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

// What every caller may load is made once, and all answers share its memory.
func TestDocumentsAreMadeOnce(t *testing.T) {
	b := setup(t)
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/docs", "/docs/index.js",
		"/docs/swagger-ui-bundle.js"} {
		var c [2]fasthttp.RequestCtx
		for i := range c {
			c[i].Request.SetRequestURI(path)
			b.server.Handle(&c[i])
			require.Equal(t, 200, c[i].Response.StatusCode(), path)
		}
		bodies := [2][]byte{c[0].Response.Body(), c[1].Response.Body()}
		assert.Same(t, &bodies[0][0], &bodies[1][0], path)
	}
}

// The page is without scripts and styles inline, and each file that it loads is there, compressed
// or not.
func TestDocs(t *testing.T) {
	b := setup(t)
	a := b.callAs("", "GET", "/docs", "")
	require.Equal(t, 200, a.status)
	page := string(a.body)
	assert.Contains(t, a.header.Get("Content-Security-Policy"),
		"default-src 'none'; script-src 'self';")
	assert.NotRegexp(t, `<style| style=| on[a-z]+=|<script[^>]*>[^<]`, page)
	links := regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	assert.Len(t, links, 6)
	for _, link := range links {
		if link[1] != "data:," {
			assert.Equal(t, 200, b.callAs("", "GET", "/"+link[1], "").status, link[1])
		}
	}
	assert.Equal(t, 400, b.callAs("", "GET", "/docs/index.html", "").status)
}

// Without a console, / is no page.
func TestNoPageAtTheRoot(t *testing.T) {
	b := setup(t)
	req, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/html")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 404, resp.StatusCode)
}

func TestDocsFiles(t *testing.T) {
	b := setup(t)
	for name, want := range map[string]struct{ contentType, text string }{
		"index.js":             {"text/javascript; charset=utf-8", "supportedSubmitMethods: []"},
		"swagger-ui-bundle.js": {"text/javascript; charset=utf-8", "SwaggerUIBundle"},
		"swagger-ui.css":       {"text/css; charset=utf-8", ".swagger-ui"},
		"LICENSE.txt":          {"text/plain; charset=utf-8", "Apache License"},
	} {
		req, err := http.NewRequest("GET", b.url+"/docs/"+name, nil)
		require.NoError(t, err)
		zipped := b.do(req) // the client asks for gzip, and unpacks it
		req.Header.Set("Accept-Encoding", "identity")
		plain := b.do(req)
		for _, a := range []answer{zipped, plain} {
			require.Equal(t, 200, a.status, name)
			assert.Equal(t, want.contentType, a.header.Get("Content-Type"))
			assert.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
			assert.Equal(t, "Accept-Encoding", a.header.Get("Vary"))
			assert.Contains(t, string(a.body), want.text, name)
		}
		assert.True(t, bytes.Equal(zipped.body, plain.body), name)
	}
}
