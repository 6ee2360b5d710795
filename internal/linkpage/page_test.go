package linkpage

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func render(t *testing.T, p Page) string {
	t.Helper()
	body, err := Render(p)
	require.NoError(t, err)
	return string(body)
}

// hostile are texts that would be more than text if a page took them as they are.
var hostile = []string{
	`<script>alert(1)</script>`, `</pre><img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`,
	`' autofocus onfocus='alert(1)`, `</style><script>alert(1)</script>`, `<!--`, `--><b>`,
	`{{.Title}}`, `&lt;b&gt;`, `javascript:alert(1)`, "a\x00b", `</title><script>alert(1)</script>`,
	`<form action=https://evil.example><button>approve</button></form>`, "\u202e\u2066",
	`<meta http-equiv=refresh content="0;url=https://evil.example">`, "\ufeff+ADw-script+AD4-",
}

// Whatever comes from a task or a person is text, wherever it stands.
func TestHostileText(t *testing.T) {
	t.Parallel()
	tags := regexp.MustCompile(`<[^>]*>`)
	fill := func(text string) string {
		return render(t, Page{Title: text, Message: text, Task: text, Summary: text, Decision: text,
			By: text, Fault: text, Until: time.Unix(0, 0),
			Decided: &asyncflow.LinkDecision{Decision: text, By: text}})
	}
	want := tags.FindAllString(strings.ReplaceAll(fill("text"), `value="text"`, ""), -1)
	for _, text := range hostile {
		page := fill(text)
		value := regexp.MustCompile(`value="[^"<>]*"`)
		require.Regexp(t, value, page)
		require.Equal(t, want, tags.FindAllString(value.ReplaceAllString(page, ""), -1), text)
		require.NotContains(t, page, "<script")
	}
}

// The policy allows the page's style, and nothing else to load, run or frame.
func TestHeaders(t *testing.T) {
	t.Parallel()
	page := render(t, Page{Title: "x", Decision: "approve"})
	inline := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)[1]
	sum := sha256.Sum256([]byte(inline))
	require.Equal(t, "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; form-action 'self'; "+
		"frame-ancestors 'none'", Headers["Content-Security-Policy"])
	require.Equal(t, "no-store", Headers["Cache-Control"])
	require.Equal(t, "no-referrer", Headers["Referrer-Policy"])
	require.Contains(t, Headers["X-Robots-Tag"], "noindex")
	require.NotRegexp(t, `(?i)<script|<link|<img|<iframe|\bsrc=|\bhref=|\bon[a-z]+=|url\(`, page)
}

func TestPage(t *testing.T) {
	t.Parallel()
	page := render(t, Page{Title: "Decide: approve", Summary: "Two pizzas", Decision: "approve",
		Task: "orders.1.42", Until: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)})
	for _, text := range []string{"<h1>Decide: approve</h1>", ">Two pizzas</pre>",
		`<form method="post">`, `maxlength="200"`, "<button>approve</button>", "Task orders.1.42",
		"Open until 27 November 2026, 12:00 UTC."} {
		require.Contains(t, page, text)
	}
	page = render(t, Page{Title: "Too late", Message: "It is over."})
	require.NotRegexp(t, `<(form|button|pre|dl|input)`, page)
	page = render(t, Page{Title: "x", Decided: &asyncflow.LinkDecision{Decision: "reject",
		By: "Anna", At: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)}})
	require.Contains(t, page, "<dd>reject</dd>")
	require.Contains(t, page, ">Anna</dd>")
	require.Contains(t, page, "<dd>27 November 2026, 12:00 UTC</dd>")
}

// A page of the longest texts is short.
func TestPageIsBounded(t *testing.T) {
	t.Parallel()
	page := render(t, Page{Title: "Decide: approve", Decision: strings.Repeat("x", 40),
		Summary: strings.Repeat(`"`, asyncflow.MaxSummaryBytes), By: strings.Repeat(`"`, 200),
		Task: strings.Repeat("x", 64)})
	require.Less(t, len(page), 32<<10)
}
