// Package docspage makes a page to read of an OpenAPI document: HTML with its style inside,
// without scripts, that loads nothing.
package docspage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Policy is the Content-Security-Policy of the page: its own style and nothing else.
var Policy = func() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// page is what the template shows.
type page struct {
	Title, Version string
	Description    []template.HTML
	Style          template.CSS
	Groups         []group
	Answers        []answer // that several calls have
	Schemas        []schema
}

// group is a tag with its calls.
type group struct {
	Name        string
	Description []template.HTML
	Calls       []call
}

// call is an operation, or a callback of one.
type call struct {
	ID, Method, Path, Summary string
	Callback                  bool
	Description               []template.HTML
	Who                       string // may call
	Parameters                []field
	Body                      *content
	Answers                   []answer
	Callbacks                 []call
}

// field is a parameter, a header or a property.
type field struct {
	Name, In    string
	Required    bool
	Type        kind
	Description []template.HTML
}

type content struct {
	Media    string
	Type     kind
	Examples []string
}

// answer is one with a status, or one that has a name and is the same in several calls:
// of that a call has only the status, the name and the description.
type answer struct {
	Status, Name string
	Description  []template.HTML
	Headers      []field
	Content      *content
}

// schema is one of those that have a name.
type schema struct {
	Name        string
	Type        kind
	Description []template.HTML
	Fields      []field
	Example     string
}

// Make returns the page of a document.
func Make(doc *openapi3.T) ([]byte, error) {
	p := page{Title: doc.Info.Title, Version: doc.Info.Version, Description: paragraphs(doc.Info.Description), Style: template.CSS(pageCSS)}
	for _, tag := range doc.Tags {
		p.Groups = append(p.Groups, group{Name: tag.Name, Description: paragraphs(tag.Description), Calls: callsOf(doc, tag.Name)})
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Responses)) {
		a := answerOf("", doc.Components.Responses[name].Value)
		a.Name = name
		p.Answers = append(p.Answers, a)
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		p.Schemas = append(p.Schemas, schemaOf(name, doc.Components.Schemas[name].Value))
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

func callsOf(doc *openapi3.T, tag string) (all []call) {
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Value(path)
		for _, method := range methods {
			if op := item.GetOperation(method); op != nil && slices.Contains(op.Tags, tag) {
				all = append(all, callOf(doc, method, path, item, op))
			}
		}
	}
	return all
}

func callOf(doc *openapi3.T, method, path string, item *openapi3.PathItem, op *openapi3.Operation) call {
	c := call{ID: op.OperationID, Method: method, Path: path, Summary: op.Summary, Description: paragraphs(op.Description), Who: who(doc, op)}
	for _, p := range append(slices.Clone(item.Parameters), op.Parameters...) {
		c.Parameters = append(c.Parameters, field{p.Value.Name, p.Value.In, p.Value.Required, kindOf(p.Value.Schema), describe(p.Value.Description, p.Value.Schema)})
	}
	if op.RequestBody != nil {
		c.Body = contentOf(op.RequestBody.Value.Content)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses.Map())) {
		ref := op.Responses.Value(status)
		a := answerOf(status, ref.Value)
		if name, ok := strings.CutPrefix(ref.Ref, "#/components/responses/"); ok {
			a = answer{Status: status, Name: name, Description: a.Description}
		}
		c.Answers = append(c.Answers, a)
	}
	for _, name := range slices.Sorted(maps.Keys(op.Callbacks)) {
		for url, item := range op.Callbacks[name].Value.Map() {
			for method, op := range item.Operations() {
				cb := callOf(doc, method, url, item, op)
				cb.Callback = true
				c.Callbacks = append(c.Callbacks, cb)
			}
		}
	}
	return c
}

// who says what a caller has to show.
func who(doc *openapi3.T, op *openapi3.Operation) string {
	security := doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	var schemes []string
	for _, requirement := range security {
		schemes = append(schemes, slices.Sorted(maps.Keys(requirement))...)
	}
	if len(schemes) == 0 {
		return "open to everybody"
	}
	text := strings.Join(schemes, " or ")
	if scope, ok := op.Extensions["x-scope"].(string); ok {
		text += " with the scope " + scope
	}
	return text
}

func answerOf(status string, r *openapi3.Response) answer {
	a := answer{Status: status, Content: contentOf(r.Content)}
	if r.Description != nil {
		a.Description = paragraphs(*r.Description)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		h := r.Headers[name].Value
		a.Headers = append(a.Headers, field{Name: name, Type: kindOf(h.Schema), Description: describe(h.Description, h.Schema)})
	}
	return a
}

func contentOf(media openapi3.Content) *content {
	for name, m := range media { // one, in our document
		c := &content{Media: name, Type: kindOf(m.Schema)}
		if m.Example != nil {
			c.Examples = append(c.Examples, pretty(m.Example))
		}
		for _, name := range slices.Sorted(maps.Keys(m.Examples)) {
			c.Examples = append(c.Examples, pretty(m.Examples[name].Value.Value))
		}
		return c
	}
	return nil
}

// pretty returns an example as indented JSON.
func pretty(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// paragraphs returns a description as HTML: of Markdown it may have blank lines and `code`.
func paragraphs(text string) (all []template.HTML) {
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if p == "" {
			continue
		}
		var b strings.Builder
		for i, part := range strings.Split(p, "`") {
			part = template.HTMLEscapeString(part)
			if i%2 == 1 {
				part = "<code>" + part + "</code>"
			}
			b.WriteString(part)
		}
		all = append(all, template.HTML(b.String()))
	}
	return all
}
