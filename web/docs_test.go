package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// docsURL is where the documentation is. TestConsoleLeadsToDocs of the project holds the places in
// its pages.
const docsURL = "https://github.com/asyncflow/asyncflow/blob/main/docs/"

// Each page of the program has a link to its documentation: also when what its address names is
// missing, and when it shows something.
func TestEachPageLeadsToItsDocs(t *testing.T) {
	p := openAlwaysOf(t, "lookers")
	shown := p.samples()
	for _, path := range routes(t, "tenantPages") {
		p.leadsToDocs(path)
	}
	for _, one := range shown {
		p.leadsToDocs(one.path)
		p.See(one.text)
	}
	p.leadsToDocs("/console/none")
	p.leadsToDocs("/console/logged-in")
	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.enter(operator)
	for _, path := range append(routes(t, "operatorPages"), "/console/tenants/lookers") {
		p.leadsToDocs(path)
	}
	p.Click("Log out")
	p.See("A token of the API")
	p.leadsToDocs("/console")
}

// leadsToDocs opens a page and expects a link to a page of the documentation that exists.
func (p *page) leadsToDocs(path string) {
	p.t.Helper()
	p.open(path)
	p.Run(`return [...document.querySelectorAll("main a")].some(a => words(a) === "Docs")`)
	href := browsertest.Ask[string](p.t, p.ctx,
		`[...document.querySelectorAll("main a")].find(a => a.innerText === "Docs").href`)
	page, ok := strings.CutPrefix(href, docsURL)
	require.True(p.t, ok, "%s leads to %s", path, href)
	page, _, _ = strings.Cut(page, "#")
	assert.FileExists(p.t, filepath.Join("../docs", page), path)
}

var route = regexp.MustCompile(`path: "([^"]+)"`)

// routes returns the addresses of a list of pages in app.tsx. What a parameter names isn't there.
func routes(t *testing.T, list string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("src/app.tsx")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "const "+list+": Page[] = [")
	require.True(t, ok, list)
	rest, _, _ = strings.Cut(rest, "\n];")
	for _, m := range route.FindAllStringSubmatch(rest, -1) {
		all = append(all, regexp.MustCompile(`:\w+`).ReplaceAllString(m[1], "missing"))
	}
	require.Greater(t, len(all), 4)
	return all
}
