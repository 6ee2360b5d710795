// Package linkpage is the page behind a link by which somebody decides about a task. It is without
// a script and loads nothing, so that it works in any browser. Whatever comes from a task is shown
// as text.
package linkpage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Page is what somebody who opens a link sees.
type Page struct {
	Title string
	// Message says what is so, in a sentence.
	Message string
	// Task is the id of the task; "": nothing is shown of it.
	Task string
	// Summary is what the task asks; "": it says nothing.
	Summary string
	// Decision is what the button decides; "": there is none.
	Decision string
	// By is the name that was written, and Fault what is wrong with it.
	By, Fault string
	// Until is when the wait ends; zero: it is not begun.
	Until time.Time
	// Decided is what was decided; nil: nothing, or nobody may see it.
	Decided *asyncflow.LinkDecision
}

// MaxBy is the length of the field for the name, in UTF-16 code units as browsers count them.
func (p Page) MaxBy() int { return asyncflow.MaxDecidedBy }

// UntilText returns when the wait ends, for people.
func (p Page) UntilText() string { return timeText(p.Until) }

// DecidedAt returns when it was decided, for people.
func (p Page) DecidedAt() string { return timeText(p.Decided.At) }

func timeText(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

//go:embed page.css
var style string

//go:embed page.html
var source string

var page = template.Must(template.New("page").Parse(source))

// Render returns the page in HTML.
func Render(p Page) ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, struct {
		Page
		Style template.CSS
	}{p, template.CSS(style)})
	return b.Bytes(), err
}

// Headers are the page's. Nothing runs or is loaded, no other page may frame this one, and
// its form goes nowhere else. Caches and search engines keep nothing, and no other site learns the
// link.
var Headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + styleHash() + "'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	"Cache-Control":          "no-store",
	"Referrer-Policy":        "no-referrer",
	"X-Content-Type-Options": "nosniff",
	"X-Robots-Tag":           "noindex, nofollow",
}

func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return base64.StdEncoding.EncodeToString(sum[:])
}
