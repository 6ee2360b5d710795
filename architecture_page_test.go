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

const (
	architecturePage = "docs/architecture.md"
	storagePage      = "docs/storage.md"
	// mostWords is how long the page about the architecture may be: it is read in ten minutes or
	// so. Details stand on the pages of their topics.
	mostWords = 4000
)

// section returns a part of a page, from its heading to the next one.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(readText(t, page), "\n## "+heading+"\n")
	require.True(t, found, "%s has no part %q", page, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func TestArchitecturePageIsShort(t *testing.T) {
	t.Parallel()
	assert.LessOrEqual(t, len(strings.Fields(readText(t, architecturePage))), mostWords)
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

// The pages list each table, background job and kind of row in the outbox.
func TestArchitecturePagesAreComplete(t *testing.T) {
	t.Parallel()
	tables := namesIn(t, `(?m)^CREATE TABLE (\w+) \(`,
		append(filesOf(t, "migrations/asyncflow/*.sql"),
			filesOf(t, "migrations/tenant/*.sql")...)...)
	for _, part := range []struct {
		page, heading string
		want          []string
	}{
		{storagePage, "Tables", tables},
		{storagePage, "Kinds of follow-ups",
			namesIn(t, `OutboxKind = "(\w+)"`, "store/internal/records/outbox.go")},
		{architecturePage, "Governance", namesIn(t, `\{"([a-z-]+)", "@every `, "governance/job.go")},
	} {
		t.Run(part.heading, func(t *testing.T) {
			t.Parallel()
			has := firstCells(section(t, part.page, part.heading))
			for _, name := range part.want {
				assert.Contains(t, has, name)
			}
		})
	}
}

// storeFloor are the rooms that all rooms above them may use: the page doesn't repeat them.
var storeFloor = []string{"lowwater", "postgres", "schema", "config", "checkup", "news", "catalog"}

// There is a row on the page for each room of the store, with the rooms that it uses and the first
// word of each of its files.
func TestArchitecturePageHasTheRooms(t *testing.T) {
	t.Parallel()
	uses := map[string][]string{}
	for _, p := range listPackages(t) {
		room, _ := strings.CutPrefix(local(p.ImportPath), "store/internal/")
		for _, path := range p.Imports {
			used, ok := strings.CutPrefix(local(path), "store/internal/")
			if ok && (slices.Contains(storeFloor, room) || !slices.Contains(storeFloor, used)) {
				uses[room] = append(uses[room], used)
			}
		}
	}
	rows := roomRows(section(t, architecturePage, "Rooms of the store"))
	for _, room := range slices.Concat(storeRooms...) {
		t.Run(room, func(t *testing.T) {
			t.Parallel()
			row, found := rows[room]
			require.True(t, found, "the page has no row for it")
			assert.ElementsMatch(t, uses[room], quoted(row.uses), "the rooms that it uses")
			words := quoted(row.files)
			for _, file := range filesOf(t, "store/internal/"+room+"/*.go") {
				name := strings.TrimSuffix(filepath.Base(file), ".go")
				word, _, _ := strings.Cut(name, "_")
				if word != "doc" && word != room && !strings.HasSuffix(name, "_test") {
					assert.Contains(t, words, word, "the first word of %s", file)
				}
			}
		})
	}
}

// roomRow is what the page says of a room.
type roomRow struct{ uses, files string }

// roomRows returns the rows of a table by the rooms in their first cells.
func roomRows(text string) map[string]roomRow {
	rows := map[string]roomRow{}
	line := regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		for _, room := range quoted(m[1]) {
			rows[room] = roomRow{uses: m[2], files: m[3]}
		}
	}
	return rows
}

// quoted returns the words in backquotes of a text.
func quoted(text string) (words []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// The blocks of packages on the page list every package of ours and no other one, with the packages
// that each imports. An example is one entry, with the packages below it. There is no Go in the
// package in TypeScript.
func TestArchitecturePageHasThePackages(t *testing.T) {
	t.Parallel()
	listed := packagesOn(section(t, architecturePage, "Packages"))
	want := map[string]map[string]bool{"sdk/typescript": {}}
	for _, p := range listPackages(t) {
		name := entryOf(local(p.ImportPath))
		if want[name] == nil {
			want[name] = map[string]bool{}
		}
		arrows := want[name]
		if above, _, isBelow := strings.Cut(name, "/internal/"); isBelow && listed[name].shares {
			arrows = want[above]
		}
		for _, path := range p.Imports {
			if to := local(path); to != "" && isDrawn(name, entryOf(to)) {
				arrows[to] = true
			}
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(listed)))
	for name, arrows := range want {
		assert.ElementsMatch(t, slices.Collect(maps.Keys(arrows)), listed[name].arrows,
			"the arrows of %s", name)
	}
}

// entryOf returns the entry of the page for a package.
func entryOf(name string) string {
	if parts := strings.Split(name, "/"); parts[0] == "examples" {
		return path.Join(parts[:2]...)
	}
	return name
}

// isDrawn reports whether the page shows an arrow for an import: it shows none to the root, to
// internal/sleep, within an example, nor to packages in the internal folder of an entry's own.
func isDrawn(from, to string) bool {
	above, _, _ := strings.Cut(from, "/internal/")
	return to != "." && to != "internal/sleep" && to != from && to != above &&
		!strings.HasPrefix(to, above+"/internal/")
}

// packageEntry is what the page says of a package. The arrows of one that shares its line with
// others are at the package above.
type packageEntry struct {
	arrows []string
	shares bool
}

// packagesOn returns the packages that the blocks of a page list. A line begins with their names,
// which commas separate. A name with "…" is below the package of the last line without one. After
// "->", there or on the next lines, come the packages that it imports.
func packagesOn(page string) map[string]packageEntry {
	entries := map[string]packageEntry{}
	block := regexp.MustCompile("(?s)\n```\n(.*?)\n```\n")
	start := regexp.MustCompile(`(?m)^(?:[\w/]+|  …/\w+)(?:, [\w/…]+)*`)
	for _, found := range block.FindAllStringSubmatch(page, -1) {
		text, above := found[1], ""
		for starts := start.FindAllStringIndex(text, -1); len(starts) > 0; starts = starts[1:] {
			from, to, end := starts[0][0], starts[0][1], len(text)
			if len(starts) > 1 {
				end = starts[1][0]
			}
			names := strings.Split(strings.TrimSpace(text[from:to]), ", ")
			for _, name := range names {
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
				entries[name] = packageEntry{arrowsIn(text[to:end]), len(names) > 1}
			}
		}
	}
	return entries
}

// arrowsIn returns the names after each "->" of a text.
func arrowsIn(text string) (names []string) {
	for _, m := range regexp.MustCompile(`-> ((?:[\w/]+(?:, )?)+)`).FindAllStringSubmatch(text, -1) {
		names = append(names, strings.Split(strings.TrimSuffix(m[1], ", "), ", ")...)
	}
	return names
}
