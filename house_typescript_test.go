package asyncflow_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The console and the TypeScript package are read like Go: lines end by column 100, and no files
// import each other in a circle.

// browserFiles returns the hand-written files of the console and the package by path, those with
// some endings.
func browserFiles(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	walkFiles(t, func(file string, text []byte) {
		ours := strings.HasPrefix(file, "web/src/") || strings.HasPrefix(file, "sdk/typescript/")
		if ours && slices.Contains(endings, path.Ext(file)) && !strings.Contains(file, ".gen.") {
			all[file] = string(text)
		}
	})
	require.Greater(t, len(all), 100)
	return all
}

func TestLinesOfTypeScript(t *testing.T) {
	t.Parallel()
	for file, text := range browserFiles(t, ".ts", ".tsx", ".mjs", ".css", ".html") {
		for i, line := range strings.Split(text, "\n") {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 100, "%s:%d", file, i+1)
		}
	}
}

var imported = regexp.MustCompile(`(?m)^(?:import|export)[^;"]*from "(\.[^"]+)";`)

func TestTypeScriptHasNoCircles(t *testing.T) {
	t.Parallel()
	files := browserFiles(t, ".ts", ".tsx")
	imports := map[string][]string{}
	for file, text := range files {
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			target := strings.Replace(path.Join(path.Dir(file), m[1]), ".js", ".ts", 1)
			if files[target] != "" {
				imports[file] = append(imports[file], target)
			}
		}
	}
	require.Contains(t, imports["sdk/typescript/src/worker.ts"], "sdk/typescript/src/run.ts")
	require.Contains(t, imports["web/src/app.tsx"], "web/src/layout.tsx")
	for file := range files {
		assert.Empty(t, wayBack(imports, file, []string{file}, map[string]bool{}))
	}
}

// wayBack returns a way from the last file of a way to its first one; nil: there is none.
func wayBack(
	imports map[string][]string, from string, way []string, seen map[string]bool,
) []string {
	for _, next := range imports[from] {
		if next == way[0] {
			return append(way, next)
		}
		if seen[next] {
			continue
		}
		seen[next] = true
		if circle := wayBack(imports, next, append(slices.Clone(way), next), seen); circle != nil {
			return circle
		}
	}
	return nil
}

var docsOf = regexp.MustCompile(`\b(?:doc|page)="([^"]+\.md[^"]*)"`)

// Each link of the console to the documentation leads to a heading that is there; the page of an
// alert is that of its kind.
func TestConsoleLeadsToDocs(t *testing.T) {
	t.Parallel()
	found := 0
	for file, text := range browserFiles(t, ".tsx") {
		for _, m := range docsOf.FindAllStringSubmatch(text, -1) {
			assert.NoError(t, follow("docs/console.md", m[1]), "%s: %s", file, m[1])
			found++
		}
	}
	assert.Greater(t, found, 25)
}
