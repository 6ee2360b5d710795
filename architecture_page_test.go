package asyncflow_test

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const architecturePage = "docs/architecture.md"

// section returns a part of the page about the architecture, from its heading to the next one.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(readText(t, architecturePage), "\n## "+heading+"\n")
	require.True(t, found, "%s has no part %q", architecturePage, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// firstCells returns the words in backquotes that stand in the first cells of a text's tables.
func firstCells(text string) map[string]bool {
	words := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(text, -1) {
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			words[word[1]] = true
		}
	}
	return words
}

// namesIn returns what the group of a pattern matches in some files.
func namesIn(t *testing.T, pattern string, files ...string) (names []string) {
	t.Helper()
	for _, file := range files {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(readText(t, file), -1) {
			names = append(names, m[1])
		}
	}
	require.NotEmpty(t, names)
	return names
}

func filesOf(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return files
}

// The page has each table, background job, kind of row in the outbox, room of the store, and the
// beginning of each file name in rooms with several subjects.
func TestArchitecturePageIsComplete(t *testing.T) {
	t.Parallel()
	var prefixes []string
	for _, room := range slices.Concat(storeRooms...) {
		prefixes = append(prefixes, path.Base(room))
	}
	for _, room := range append(slices.Concat(storeRooms...), "..") {
		for _, file := range filesOf(t, "store/internal/"+room+"/*.go") {
			if !strings.HasSuffix(file, "_test.go") {
				prefix, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".go"), "_")
				prefixes = append(prefixes, prefix)
			}
		}
	}
	tables := namesIn(t, `(?m)^CREATE TABLE (\w+) \(`,
		append(filesOf(t, "migrations/asyncflow/*.sql"),
			filesOf(t, "migrations/tenant/*.sql")...)...)
	for _, part := range []struct {
		heading string
		want    []string
	}{
		{"Packages", prefixes},
		{"Tables", tables},
		{"Governance", namesIn(t, `\{"([a-z-]+)", "@every `, "governance/job.go")},
		{"Trees", namesIn(t, `OutboxKind = "(\w+)"`, "store/internal/records/outbox.go")},
	} {
		t.Run(part.heading, func(t *testing.T) {
			t.Parallel()
			has := firstCells(section(t, part.heading))
			for _, name := range part.want {
				assert.Contains(t, has, name)
			}
		})
	}
}

// The block of packages on the page has every package of ours and no other one. An example is one
// entry, with the packages below it. The package in TypeScript has no Go in it.
func TestArchitecturePageHasThePackages(t *testing.T) {
	t.Parallel()
	want := map[string]bool{"sdk/typescript": true}
	for _, p := range listPackages(t) {
		name := local(p.ImportPath)
		if parts := strings.Split(name, "/"); parts[0] == "examples" {
			name = path.Join(parts[:2]...)
		}
		want[name] = true
	}
	listed := packagesOn(section(t, "Packages"))
	assert.ElementsMatch(t, slices.Sorted(maps.Keys(want)), listed)
}

// packagesOn returns the packages that a page lists in its first block. A line begins with their
// names, which commas separate. A name with "…" is below the package of the last line without one.
func packagesOn(page string) (names []string) {
	_, block, _ := strings.Cut(page, "\n```\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	lines := regexp.MustCompile(`(?m)^(?:[\w/]+|  …/\w+)(?:, [\w/…]+)*`)
	above := ""
	for _, line := range lines.FindAllString(block, -1) {
		for _, name := range strings.Split(strings.TrimSpace(line), ", ") {
			below, isBelow := strings.CutPrefix(name, "…/")
			switch {
			case isBelow:
				name = above + "/internal/" + below
			case name == "asyncflow":
				name = "."
			}
			if !isBelow {
				above = name
			}
			names = append(names, name)
		}
	}
	return names
}
