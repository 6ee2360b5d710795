package asyncflow_test

import (
	"strings"
	"testing"

	"github.com/asyncflow/asyncflow"
)

func TestEndpointValidate(t *testing.T) {
	const (
		absolute = "url must be an absolute https URL such as https://worker.example.com/resize"
		noHTTP   = "url must be https: plain http is off (the operator's --allow-http)"
		noUser   = "url must not hold a user or a password"
	)
	type when struct {
		url, want string
		allowHTTP bool
	}
	parallel(t, map[string]when{
		"https":            {url: "https://worker.example.com/resize?size=1"},
		"no path":          {url: "https://worker.example.com"},
		"port":             {url: "https://worker.example.com:8443/"},
		"upper-case https": {url: "HTTPS://worker.example.com/"},
		"IPv6":             {url: "https://[2001:db8::1]:8443/"},
		"http allowed":     {url: "http://127.0.0.1:9000/", allowHTTP: true},
		"http":             {url: "http://worker.example.com/", want: noHTTP},
		"upper-case http":  {url: "HTTP://worker.example.com/", want: noHTTP},

		"empty":           {url: "", want: "url is required"},
		"relative":        {url: "/resize", want: absolute},
		"no scheme":       {url: "worker.example.com/resize", want: absolute},
		"scheme-relative": {url: "//worker.example.com/resize", want: absolute},
		"no host":         {url: "https:///resize", want: absolute},
		"only a port":     {url: "https://:443/", want: absolute},
		"only a user":     {url: "https://user@/", want: absolute},
		"opaque":          {url: "https:worker.example.com", want: absolute},
		"ftp":             {url: "ftp://worker.example.com/", want: absolute},
		"file":            {url: "file:///etc/passwd", want: absolute},
		"gopher":          {url: "gopher://worker.example.com/", want: absolute},
		"javascript":      {url: "javascript:alert(1)", want: absolute},
		"unix":            {url: "unix:///run/docker.sock", want: absolute},
		"space":           {url: "https://worker example.com/", want: absolute},
		"leading space":   {url: " https://worker.example.com/", want: absolute},
		"newline":         {url: "https://worker.example.com/\nX-Evil: 1", want: absolute},
		"NUL":             {url: "https://worker.example.com/\x00", want: absolute},
		"bad port":        {url: "https://worker.example.com:http/", want: absolute},
		"bad escape":      {url: "https://worker.example.com/%zz", want: absolute},

		"user":          {url: "https://user@worker.example.com/", want: noUser},
		"password":      {url: "https://user:pass@worker.example.com/", want: noUser},
		"empty user":    {url: "https://@worker.example.com/", want: noUser},
		"look-alike":    {url: "https://worker.example.com@evil.example.com/", want: noUser},
		"user, http ok": {url: "http://user@worker.example.com/", want: noUser, allowHTTP: true},
		"fragment":      {url: "https://worker.example.com/#part", want: "url must not hold a fragment"},
		"longest":       {url: urlOf(2048)},
		"too long":      {url: urlOf(2049), want: "url is 2049 bytes long; the limit is 2048"},
	}, func(t *testing.T, c when) {
		e := asyncflow.Endpoint{Type: "thumbnails", Stage: "resize", URL: c.url}
		requireRefusal(t, e.Validate(c.allowHTTP), asyncflow.CodeInvalid, c.want)
	})
}

func urlOf(length int) string {
	const start = "https://worker.example.com/"
	return start + strings.Repeat("a", length-len(start))
}

func TestEndpointNames(t *testing.T) {
	t.Parallel()
	e := asyncflow.Endpoint{Type: "Thumbnails", Stage: strings.Repeat("a", 41), URL: "ftp://"}
	requireRefusal(t, e.Validate(true), asyncflow.CodeInvalid, "type must start with a lower-case letter"+
		"; stage is 41 characters long; the limit is 40"+
		"; url must be an absolute https URL such as https://worker.example.com/resize")
}
