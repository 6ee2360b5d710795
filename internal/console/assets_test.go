package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/web"
)

func bundled(t *testing.T, name string) []byte {
	t.Helper()
	text, err := web.Assets.ReadFile("assets/" + name)
	require.NoError(t, err)
	return text
}

func unzip(t *testing.T, text []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(text))
	require.NoError(t, err)
	plain, err := io.ReadAll(r)
	require.NoError(t, err)
	return plain
}

// Every address below /console is the page, except those of files and calls.
func TestPages(t *testing.T) {
	b := setup(t)
	page := bundled(t, "index.html")
	for _, path := range []string{"/console", "/console/", "/console/tasks/images.v2.1",
		"/console/types/a.js?limit=5", "/console/../v1/tasks", "/console/assets"} {
		a := b.do("GET", path, nil)
		require.Equal(t, 200, a.status, path)
		assert.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"), path)
		assert.Equal(t, page, a.body, path)
	}
	for _, path := range []string{"/consoles", "/console.html", "/console/assets/",
		"/console/assets/nothing.js", "/console/assets/../assets/console.js"} {
		assert.Equal(t, 404, b.do("GET", path, nil).status, path)
	}
	head := b.do("HEAD", "/console", nil)
	assert.Equal(t, 200, head.status)
	assert.Empty(t, head.body)
	for _, path := range []string{"/console", "/console/assets/console.js"} {
		a := b.do("POST", path, own)
		assert.Equal(t, 405, a.status)
		assert.Equal(t, "GET, HEAD", a.header.Get("Allow"))
	}
	assert.Equal(t, 405, b.do("GET", "/console/login", own).status)
	assert.Equal(t, 405, b.do("GET", "/console/logout", own).status)
	assert.Equal(t, 405, b.do("POST", "/console/session", own).status)
}

// A browser at / is led to the console. Programs get the 404 of any unknown path.
func TestRootLeadsToTheConsole(t *testing.T) {
	b := setup(t)
	browser := headers{"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
	for _, method := range []string{"GET", "HEAD"} {
		a := b.do(method, "/", browser)
		assert.Equal(t, 302, a.status, method)
		assert.Equal(t, "/console", a.header.Get("Location"), method)
		assert.Equal(t, "Accept", a.header.Get("Vary"), method)
	}
	for _, h := range []headers{nil, {"Accept": "*/*"}, {"Accept": "application/json"}} {
		assert.Equal(t, 404, b.do("GET", "/", h).status, "%v", h)
	}
	assert.Equal(t, 404, b.do("POST", "/", browser).status)
	assert.Equal(t, 404, b.do("GET", "/v2", browser).status)
}

// A file is sent once: then its tag, which is a hash of it, says that it hasn't changed.
func TestFiles(t *testing.T) {
	b := setup(t)
	for name, contentType := range map[string]string{
		"index.html":  "text/html; charset=utf-8",
		"console.js":  "text/javascript; charset=utf-8",
		"console.css": "text/css; charset=utf-8",
	} {
		path := "/console/assets/" + name
		a := b.do("GET", path, nil)
		require.Equal(t, 200, a.status, name)
		assert.Equal(t, bundled(t, name), a.body)
		assert.Equal(t, contentType, a.header.Get("Content-Type"))
		assert.Equal(t, "no-cache", a.header.Get("Cache-Control"))
		assert.Equal(t, "Accept-Encoding", a.header.Get("Vary"))
		tag := a.header.Get("ETag")
		require.Regexp(t, `^"[\w-]+"$`, tag)

		for _, known := range []string{tag, `"x", ` + tag, "W/" + tag, "*"} {
			same := b.do("GET", path, headers{"If-None-Match": known})
			assert.Equal(t, 304, same.status, known)
			assert.Equal(t, tag, same.header.Get("ETag"))
			assert.NotEmpty(t, same.header.Get("Content-Security-Policy"))
			assert.Empty(t, same.body)
		}
		for _, other := range []string{`"x"`, tag[:len(tag)-2] + `"`, "nonsense"} {
			assert.Equal(t, 200, b.do("GET", path, headers{"If-None-Match": other}).status, other)
		}
	}
}

// A file is compressed if the browser accepts that and it is shorter. Each form gets its own tag.
func TestCompression(t *testing.T) {
	b := setup(t)
	plain := b.do("GET", "/console", nil)
	zipped := b.do("GET", "/console", headers{"Accept-Encoding": "br, gzip"})
	assert.Empty(t, plain.header.Get("Content-Encoding"))
	require.Equal(t, "gzip", zipped.header.Get("Content-Encoding"))
	assert.Equal(t, plain.body, unzip(t, zipped.body))
	assert.Less(t, len(zipped.body), len(plain.body))
	tag := zipped.header.Get("ETag")
	assert.NotEqual(t, plain.header.Get("ETag"), tag)
	h := headers{"Accept-Encoding": "gzip", "If-None-Match": tag}
	assert.Equal(t, 304, b.do("GET", "/console", h).status)
	assert.Equal(t, 200, b.do("GET", "/console", headers{"If-None-Match": tag}).status)

	sum := 0
	for _, name := range []string{"console.js", "console.css"} {
		file := b.do("GET", "/console/assets/"+name, headers{"Accept-Encoding": "gzip"})
		require.Equal(t, "gzip", file.header.Get("Content-Encoding"))
		sum += len(file.body)
	}
	t.Logf("scripts and styles: %d bytes, compressed", sum)
	assert.LessOrEqual(t, sum, 80_000)
	charts := b.do("GET", "/console/assets/plot.js", headers{"Accept-Encoding": "gzip"})
	t.Logf("the bundle of pages with charts: %d bytes more", len(charts.body))
	assert.LessOrEqual(t, len(charts.body), 30_000)
}

// Whatever the answer, the browser gets the policy, and the page keeps to it.
func TestPolicy(t *testing.T) {
	b := setup(t)
	for path, status := range map[string]int{"/console": 200, "/console/assets/console.js": 200,
		"/console/session": 200, "/console/assets/nothing": 404, "/console/login": 405} {
		a := b.do("GET", path, nil)
		require.Equal(t, status, a.status)
		assert.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; "+
			"img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; "+
			"form-action 'self'; frame-ancestors 'none'", a.header.Get("Content-Security-Policy"),
			path)
		assert.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"), path)
		assert.Equal(t, "same-origin", a.header.Get("Cross-Origin-Opener-Policy"), path)
		assert.Equal(t, "same-origin", a.header.Get("Cross-Origin-Resource-Policy"), path)
	}
	page := string(bundled(t, "index.html"))
	assert.NotRegexp(t, `<style| style=| on[a-z]+=|<script[^>]*>[^<]`, page)
	links := regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		if link[1] == "data:," {
			continue
		}
		assert.Equal(t, 200, b.do("GET", link[1], nil).status, link[1])
	}
}
