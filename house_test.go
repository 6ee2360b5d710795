package asyncflow_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
)

// Documents and container files can't be compiled; these tests keep them consistent with the
// code.

// README.md begins with the commands that work in a fresh clone.
func TestReadmeBeginsWithTheTwoCommands(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)\n```").FindAllStringSubmatch(readText(t,
		"README.md"), 2)
	require.Len(t, blocks, 2)
	require.Equal(t,
		"git clone https://github.com/asyncflow/asyncflow && cd asyncflow && go run "+
			"./cmd/asyncflow dev",
		blocks[0][1])
	require.Equal(t, "go test ./...", blocks[1][1])
}

// Every relative link in the documents leads to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	require.Contains(t, pages, "README.md")
	require.Contains(t, pages, "docs/state-machine.md")
	for _, page := range pages {
		for _, target := range links(readText(t, page)) {
			if err := follow(page, target); err != nil {
				t.Errorf("%s: the link %s: %v", page, target, err)
			}
		}
	}
}

func TestLinkRules(t *testing.T) {
	t.Parallel()
	text := "# A `go` title, it's\n[a](b.md#c) [web](https://x) ![i](p.png)\n```sh\n[no](no.md)\n" +
		"# no\n```\n## Same\n## Same\n"
	require.Equal(t, []string{"b.md#c", "p.png"}, links(text))
	require.Equal(t, []string{"a-go-title-its", "same", "same-1"}, anchors(text))
	require.NoError(t, follow("README.md", "docs/api.md#submit"))
	require.NoError(t, follow("docs/api.md", "../openapi.yaml"))
	require.Error(t, follow("docs/api.md", "openapi.yaml"))
	require.Error(t, follow("README.md", "docs/api.md#nowhere"))
}

// There is a row and an example in docs/errors.md for every error code.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	text := readText(t, "docs/errors.md")
	codes := regexp.MustCompile(`Code\w+ +Code = "(\w+)"`).FindAllStringSubmatch(readText(t,
		"error.go"), -1)
	require.NotEmpty(t, codes)
	for _, code := range codes {
		require.Contains(t, text, "\n| `"+code[1]+"` |")
		require.Contains(t, text, `"code": "`+code[1]+`"`)
	}
}

// Every setting of the program is in docs/configuration.md, with its default.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	text := readText(t, "docs/configuration.md")
	settings := settingsOf(t, "cmd/asyncflow")
	require.Contains(t, settings, "ASYNCFLOW_SECRET")
	for name, s := range settings {
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\|.*$").FindString(text)
		if row == "" {
			t.Errorf("%s is not in docs/configuration.md", name)
		} else if s.def != "" && !strings.Contains(row, "`"+s.def+"`") {
			t.Errorf("%s: docs/configuration.md lacks its default %s: %s", name, s.def, row)
		}
	}
}

// API and npm package carry the newest version in the list of changes.
func TestVersions(t *testing.T) {
	t.Parallel()
	var contract struct {
		Info struct{ Version string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, "openapi.yaml")), &contract))
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindStringSubmatch(readText(t,
		"CHANGELOG.md"))
	require.NotNil(t, newest)
	require.Equal(t, contract.Info.Version, newest[1])
	var npm struct{ Version string }
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, "sdk/typescript/package.json")), &npm))
	require.Equal(t, contract.Info.Version, npm.Version)
}

// SECURITY.md names tests that exist.
func TestSecurityNamesTests(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	walkFiles(t, func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text,
				-1) {
				known[string(m[1])] = true
			}
		}
	})
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(readText(t,
		"SECURITY.md"), -1)
	require.Greater(t, len(named), 50)
	for _, m := range named {
		require.Contains(t, known, m[1])
	}
}

// Actions of others are pinned by the hash of their commit: a tag may be moved.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`@[0-9a-f]{40} # v\d`)
	uses := regexp.MustCompile(`(?m)^ *- uses: .*$`).FindAllString(readText(t,
		".github/workflows/ci.yml"), -1)
	require.NotEmpty(t, uses)
	for _, line := range uses {
		require.Regexp(t, pinned, line)
	}
}

// Images of others are pinned by the hash of their index, which covers all architectures.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}$`)
	ours := regexp.MustCompile(`^(scratch|asyncflow(-\w+)?)$`)
	named := regexp.MustCompile(`(?m)^(?:FROM| +image:) (\S+)`)
	var foreign int
	for _, file := range []string{"Dockerfile", "docker-compose.yml", ".github/workflows/ci.yml"} {
		for _, m := range named.FindAllStringSubmatch(readText(t, file), -1) {
			if !ours.MatchString(m[1]) {
				require.Regexp(t, pinned, m[1], file)
				foreign++
			}
		}
	}
	require.Equal(t, 4, foreign)
}

const wherePage = "docs/where.md"

// The page "Where is…?" names files that exist, for each behaviour one to three and a test, and
// is linked from where a newcomer begins.
func TestWhereIsEverything(t *testing.T) {
	t.Parallel()
	text := readText(t, wherePage)
	for _, from := range []string{"README.md", "CONTRIBUTING.md", "docs/architecture.md"} {
		require.Contains(t, readText(t, from), "where.md)", "%s has no link to %s", from, wherePage)
	}
	file := regexp.MustCompile("`([\\w./-]+\\.(?:go|sql|ya?ml|ts))`")
	for _, m := range file.FindAllStringSubmatch(text, -1) {
		assert.FileExists(t, m[1])
	}

	rows := regexp.MustCompile(`(?m)^\| .+ \|$`).FindAllString(text, -1)
	rows = slices.DeleteFunc(rows, func(row string) bool {
		return strings.HasPrefix(row, "| Where is") // a header
	})
	require.GreaterOrEqual(t, len(rows), 20)
	shape := regexp.MustCompile(
		"^\\| [^|]+ \\| `[^`|]+`(?:, `[^`|]+`){0,2} \\| `(Test\\w+)` in `([^`|]+_test\\.go)` \\|$")
	for _, row := range rows {
		m := shape.FindStringSubmatch(row)
		if assert.NotNil(t, m, "it has no one to three files and a test: %s", row) {
			assertFunction(t, m[2], m[1])
		}
	}
}

// A capability has one row: what is said of it twice is stale once.
func TestCapabilitiesHaveOneRow(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile(`(?m)^\| ([^|*]*[^|* ]) \| `)
	seen := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(readText(t, "docs/capabilities.md"), -1) {
		assert.False(t, seen[m[1]] && m[1] != "Area", "%q stands twice", m[1])
		seen[m[1]] = true
	}
	require.Greater(t, len(seen), 50)
}

// The files to read to follow one task, and one fan-out, hold the functions that the page names.
func TestWherePathsPass(t *testing.T) {
	t.Parallel()
	page := readText(t, wherePage)
	step := regexp.MustCompile("(?m)^\\d+\\. `([^`]+)`(?: \\(([^)]+)\\))?:")
	name := regexp.MustCompile("`(\\w+)`")
	for heading, files := range map[string]int{"Follow one task": 15, "Follow one fan-out": 12} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			_, path, found := strings.Cut(page, "\n## "+heading+"\n")
			require.True(t, found)
			path, _, _ = strings.Cut(path, "\n## ")
			steps := step.FindAllStringSubmatch(path, -1)
			require.Len(t, steps, files, "the page says how many")
			for _, m := range steps {
				for _, name := range name.FindAllStringSubmatch(m[2], -1) {
					assertFunction(t, m[1], name[1])
				}
			}
		})
	}
}

// assertFunction checks that a Go file declares a function or method.
func assertFunction(t *testing.T, file, name string) {
	t.Helper()
	assert.Regexp(t, `(?m)^func (\(.+\) )?`+name+`[\[(]`, readText(t, file), "%s of %s", name, file)
}

// The documents name make targets that exist.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	makefile := readText(t, "Makefile")
	for _, page := range documents(t) {
		for _, m := range regexp.MustCompile("`make ([a-z-]+)`").FindAllStringSubmatch(readText(t,
			page),
			-1) {
			require.Regexp(t, `(?m)^`+m[1]+`:`, makefile, "%s names make %s", page, m[1])
		}
	}
}

// No file names a package registry: builds must work with a mirror.
func TestNoRegistryHosts(t *testing.T) {
	t.Parallel()
	hosts := []string{"proxy.golang" + ".org", "sum.golang" + ".org", "registry.npmjs" + ".org",
		"registry.yarnpkg" + ".com",
		"pypi" + ".org", "files.pythonhosted" + ".org", "crates" + ".io", "rubygems" + ".org"}
	seen := 0
	walkFiles(t, func(path string, text []byte) {
		seen++
		for _, host := range hosts {
			if bytes.Contains(text, []byte(host)) {
				t.Errorf("%s names %s", path, host)
			}
		}
	})
	require.Greater(t, seen, 50)
}

// composeFile is the part of docker-compose.yml that is checked.
type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
}

type composeService struct {
	Image       string
	PullPolicy  string `json:"pull_policy"`
	Build       struct{ Context, Target string }
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Networks    map[string]struct{ Aliases []string }
	DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
	Healthcheck *struct{ Test []string }
}

func TestCompose(t *testing.T) {
	t.Parallel()
	var f composeFile
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, "docker-compose.yml")), &f))
	for _, name := range []string{"postgres", "node-1", "node-2", "setup-database", "setup-types",
		"thumbnails"} {
		require.Contains(t, f.Services, name)
	}
	dockerfile := readText(t, "Dockerfile")
	checkImages(t, f)
	for name, s := range f.Services {
		checkDependencies(t, f, name, s)
		checkHosts(t, f, name, s)
		checkVolumes(t, f, name, s)
		if s.Build.Context != "" {
			require.Equal(t, ".", s.Build.Context, name)
			require.Regexp(t, `(?m)^FROM \S+ AS `+s.Build.Target+`$`, dockerfile, name)
		}
	}
	checkOrder(t, f)
	checkNodes(t, f.Services["node-1"], f.Services["node-2"])
	checkSetup(t, f)
	worker := settingsOf(t, "examples/thumbnails/cmd/thumbnails")
	for variable := range f.Services["thumbnails"].Environment {
		require.Contains(t, worker, variable)
	}
}

// checkImages checks that one service builds each image, and that others with it don't pull it.
func checkImages(t *testing.T, f composeFile) {
	builders := map[string]string{}
	for name, s := range f.Services {
		if s.Build.Target != "" {
			require.NotContains(t, builders, s.Image, "%s builds it, too", name)
			builders[s.Image] = name
		}
	}
	for name, s := range f.Services {
		if builders[s.Image] != "" && s.Build.Target == "" {
			require.Equal(t, "never", s.PullPolicy, name)
		}
	}
	require.Len(t, builders, 3)
}

func checkDependencies(t *testing.T, f composeFile, name string, s composeService) {
	for other, how := range s.DependsOn {
		require.Contains(t, f.Services, other, "%s depends on it", name)
		switch how.Condition {
		case "service_healthy": // it comes with a check of its own, or its image does
			require.True(t, f.Services[other].Healthcheck != nil ||
				f.Services[other].Image == "asyncflow",
				"%s depends on the health of %s", name, other)
		case "service_completed_successfully":
			require.True(t, strings.HasPrefix(other, "setup-"), "%s waits for the end of %s", name,
				other)
		default:
			t.Errorf("%s depends on %s with the condition %q", name, other, how.Condition)
		}
	}
}

// checkHosts checks that each URL in the environment leads to a service, by its name or alias.
func checkHosts(t *testing.T, f composeFile, name string, s composeService) {
	known := slices.Collect(maps.Keys(f.Services))
	for _, other := range f.Services {
		known = append(known, other.Networks["default"].Aliases...)
	}
	for variable, value := range s.Environment {
		if m := regexp.MustCompile(`://(?:.*@)?([^:/@]+):\d+`).FindStringSubmatch(value); m != nil {
			require.Contains(t, known, m[1], "%s: %s", name, variable)
		} else {
			require.NotContains(t, value, "://", "%s: %s", name, variable)
		}
	}
}

func checkVolumes(t *testing.T, f composeFile, name string, s composeService) {
	for _, v := range s.Volumes {
		source, _, _ := strings.Cut(v, ":")
		if strings.HasPrefix(source, ".") {
			require.FileExists(t, source, name)
		} else {
			require.Contains(t, f.Volumes, source, name)
		}
	}
}

// checkOrder checks that schema and tenant come before the nodes, and the nodes before the types.
func checkOrder(t *testing.T, f composeFile) {
	require.Equal(t, "service_healthy",
		f.Services["setup-database"].DependsOn["postgres"].Condition)
	for _, node := range []string{"node-1", "node-2"} {
		require.Equal(t, "service_completed_successfully",
			f.Services[node].DependsOn["setup-database"].Condition)
	}
	require.Equal(t, "service_healthy", f.Services["setup-types"].DependsOn["node-1"].Condition)
}

// checkNodes checks that the two nodes are alike, except for the port on the host.
func checkNodes(t *testing.T, a, b composeService) {
	require.Equal(t, a.Environment, b.Environment)
	require.Equal(t, []string{"serve"}, a.Command)
	require.Equal(t, a.Command, b.Command)
	require.Equal(t, []string{"127.0.0.1:8080:8080"}, a.Ports)
	require.Equal(t, []string{"127.0.0.1:8082:8080"}, b.Ports)
	settings := settingsOf(t, "cmd/asyncflow")
	for variable := range a.Environment {
		if variable == "PGPASSWORD" { // pgx reads it
			continue
		}
		require.Contains(t, settings, variable)
		require.Regexp(t, `^(serve|flags_\w+)\.go$`, settings[variable].file)
	}
	for name, s := range settings {
		if s.required {
			require.Contains(t, a.Environment, name)
		}
	}
	require.GreaterOrEqual(t, len(orDefault(a.Environment["ASYNCFLOW_SECRET"])), 32)
	require.GreaterOrEqual(t, len(orDefault(a.Environment["ASYNCFLOW_JWT_SECRET"])), 32)
}

// checkSetup checks that the one-shot services run commands that exist, with the nodes' database
// and keys, and with all variables that the document needs.
func checkSetup(t *testing.T, f composeFile) {
	node, types := f.Services["node-1"], f.Services["setup-types"]
	database := f.Services["setup-database"]
	require.Equal(t, node.Environment["DATABASE_URL"], database.Environment["DATABASE_URL"])
	require.Equal(t, node.Environment["ASYNCFLOW_JWT_SECRET"],
		types.Environment["ASYNCFLOW_JWT_SECRET"])
	require.Equal(t, f.Services["thumbnails"].Environment["THUMBNAILS_SECRET"],
		types.Environment["THUMBNAILS_SECRET"])
	require.Contains(t, f.Services["postgres"].Environment["POSTGRES_PASSWORD"],
		"POSTGRES_PASSWORD")
	require.NotContains(t, node.Environment["DATABASE_URL"], "$",
		"a password may have any character")
	for _, s := range []composeService{node, database} {
		require.Equal(t, f.Services["postgres"].Environment["POSTGRES_PASSWORD"],
			s.Environment["PGPASSWORD"])
	}
	require.Contains(t, f.Services["postgres"].Command, "search_path=public")

	document := readText(t, "examples/thumbnails/asyncflow.yaml")
	for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(document, -1) {
		require.Contains(t, types.Environment, m[1])
	}
	known := subcommands(t)
	require.Contains(t, known, "types apply")
	found := map[string]string{}
	for _, s := range []composeService{database, types} {
		script := strings.Join(s.Command, "\n")
		for _, m := range regexp.MustCompile(
			`asyncflow ([a-z]+ [a-z]+)([^&|)\n]*)`).FindAllStringSubmatch(script, -1) {
			require.Contains(t, known, m[1])
			found[m[1]] = m[2]
		}
	}
	require.Equal(t, " demo", found["tenants create"])
	require.Contains(t, found["token create"], "--tenant demo")
	require.Contains(t, found, "migrate up")
	require.Equal(t, " -f examples/thumbnails/asyncflow.yaml", found["types apply"])
}

// orDefault returns the default of "${NAME:-default}".
func orDefault(value string) string {
	_, def, _ := strings.Cut(strings.TrimSuffix(value, "}"), ":-")
	return def
}

// All that the Dockerfile copies and builds exists, and .dockerignore doesn't leave it out.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := readText(t, "Dockerfile")
	for _, m := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(text,
		-1) {
		for _, path := range strings.Fields(m[1]) {
			_, err := os.Stat(path)
			require.NoError(t, err)
			require.NotContains(t, readText(t, ".dockerignore"), "\n"+path+"\n")
		}
	}
	builds := regexp.MustCompile(`-o (/out/\w+) (\./\S+)`).FindAllStringSubmatch(text, -1)
	require.Len(t, builds, 2)
	for _, m := range builds {
		require.FileExists(t, filepath.Join(m[2], "main.go"))
		require.Contains(t, text, "COPY --from=build "+m[1]+" ")
	}
	require.Contains(t, text, "ENV CGO_ENABLED=0")
	require.Regexp(t, `HEALTHCHECK .*CMD \["/asyncflow", "healthcheck"\]`, text)
	require.Contains(t, subcommands(t), "healthcheck")
	stages := regexp.MustCompile(`(?m)^FROM \S+ AS (\w+)$`).FindAllStringSubmatch(text, -1)
	require.Equal(t, "asyncflow", stages[len(stages)-1][1], "the default target")
	for i, stage := range strings.Split(text, "\nFROM ")[1:] {
		if i > 0 { // all but the one that builds
			require.Contains(t, stage, "\nUSER 65532:65532\n")
		}
	}
	gomod := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readText(t, "go.mod"))
	require.Regexp(t, `(?m)^FROM golang:`+gomod[1]+`\.\d+-`, text)
}

// setting is a flag that can be set by the environment.
type setting struct {
	file, def string
	required  bool
}

// settingsOf returns the env tags of the structs in a folder.
func settingsOf(t *testing.T, dir string) map[string]setting {
	found := map[string]setting{}
	eachTag(t, dir, func(file, _, _ string, tag reflect.StructTag) {
		if name := tag.Get("env"); name != "" {
			_, required := tag.Lookup("required")
			found[name] = setting{file: file, def: tag.Get("default"), required: required}
		}
	})
	require.NotEmpty(t, found)
	return found
}

// subcommands returns the commands of asyncflow without subcommands, such as "migrate up" and
// "serve".
func subcommands(t *testing.T) []string {
	below := map[string][][2]string{} // name and type of the commands, by struct
	eachTag(t, "cmd/asyncflow", func(_, owner, field string, tag reflect.StructTag) {
		if _, ok := tag.Lookup("cmd"); ok {
			name, kind, _ := strings.Cut(field, " ")
			below[owner] = append(below[owner], [2]string{strings.ToLower(name), kind})
		}
	})
	var all []string
	var walk func(prefix, owner string)
	walk = func(prefix, owner string) {
		for _, c := range below[owner] {
			if len(below[c[1]]) == 0 {
				all = append(all, prefix+c[0])
			}
			walk(prefix+c[0]+" ", c[1])
		}
	}
	walk("", "cli")
	require.Contains(t, all, "serve")
	return all
}

// eachTag calls do with every tagged field of the structs in a folder: file, struct, "name type",
// tag.
func eachTag(t *testing.T, dir string, do func(file, owner, field string, tag reflect.StructTag)) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					if f.Tag != nil && len(f.Names) == 1 {
						tag, _ := strconv.Unquote(f.Tag.Value)
						do(filepath.Base(path), spec.Name.Name,
							fmt.Sprint(f.Names[0].Name, " ", f.Type), reflect.StructTag(tag))
					}
				}
			}
			return true
		})
	}
}

// documents returns the pages to be checked for their links.
func documents(t *testing.T) []string {
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
	err := filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, filepath.ToSlash(path))
		}
		return err
	})
	require.NoError(t, err)
	return pages
}

// withoutCode returns a page without its code blocks.
func withoutCode(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// links returns the relative targets of a page's links.
func links(text string) []string {
	var targets []string
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutCode(text),
		-1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			targets = append(targets, m[1])
		}
	}
	return targets
}

// follow returns an error if a link leads nowhere.
func follow(page, target string) error {
	path, anchor, hasAnchor := strings.Cut(target, "#")
	if path == "" {
		path = page
	} else {
		path = filepath.Join(filepath.Dir(page), path)
	}
	if !hasAnchor {
		_, err := os.Stat(path)
		return err
	}
	known, ok := anchorsByPath.Load(path)
	if !ok {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		known = anchors(string(text))
		anchorsByPath.Store(path, known)
	}
	if !slices.Contains(known.([]string), anchor) {
		return fmt.Errorf("there is no heading #%s", anchor)
	}
	return nil
}

// anchorsByPath holds the anchors of pages that links lead to.
var anchorsByPath sync.Map // of []string

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} (.+)$`).FindAllStringSubmatch(withoutCode(text),
		-1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		if n := count[slug]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", slug, n))
		} else {
			all = append(all, slug)
		}
		count[slug]++
	}
	return all
}

// walkFiles calls do with every text file of the project. They are read once for all tests.
func walkFiles(t *testing.T, do func(path string, text []byte)) {
	files, err := textFiles()
	require.NoError(t, err)
	for _, f := range files {
		do(f.path, f.text)
	}
}

type textFile struct {
	path string
	text []byte
}

var textFiles = sync.OnceValues(func() (files []textFile, err error) {
	skipped := []string{".git", "bin", "dist", ".asyncflow", "bench/out", "node_modules"}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process deleted it meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(skipped, filepath.ToSlash(path)) ||
			slices.Contains(skipped, d.Name())):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !bytes.ContainsRune(text, 0) {
			files = append(files, textFile{path, text})
		}
		return err
	})
	return files, err
})

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// The contract that is served is the file that the documents link to.
func TestContractIsTheFile(t *testing.T) {
	t.Parallel()
	require.Equal(t, readText(t, "openapi.yaml"), string(asyncflow.OpenAPI))
}

// The contract is for every generator: one for Go takes "x-go-type" as an order, and its output
// would import this project. What our own code needs of the kind is in client/api/overlay.yaml.
func TestContractIsForEveryGenerator(t *testing.T) {
	t.Parallel()
	extension := regexp.MustCompile(`x-[a-z-]+:`)
	for _, name := range extension.FindAllString(string(asyncflow.OpenAPI), -1) {
		require.Contains(t, []string{"x-scope:", "x-events:", "x-www-form-urlencoded:"}, name)
	}
}

// There is no "default" for a field in the contract, but a sentence: generated clients make such a
// field required, or send the default in every change.
func TestContractFieldsHaveNoDefault(t *testing.T) {
	t.Parallel()
	var contract struct {
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, yaml.Unmarshal(asyncflow.OpenAPI, &contract))
	var look func(path string, v any)
	look = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, field := range v {
				if name == "default" {
					t.Errorf("%s has a default: say it in its description", path)
				}
				look(path+"."+name, field)
			}
		case []any:
			for _, entry := range v {
				look(path, entry)
			}
		}
	}
	require.NotEmpty(t, contract.Components.Schemas)
	look("schemas", contract.Components.Schemas)
}

// Commands that can be pasted from the documents contain no placeholders.
func TestDocumentsCanBePasted(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`(^|\s)(#|//).*`)
	for _, page := range documents(t) {
		for _, block := range regexp.MustCompile(
			"(?ms)^```(?:sh|go|python|ts|sql)\n(.*?)^```").FindAllStringSubmatch(readText(t, page),
			-1) {
			for line := range strings.Lines(block[1]) {
				require.NotContains(t, comment.ReplaceAllString(line, ""), "…", "%s: %s", page,
					line)
			}
		}
	}
}

// The Go programs in the documents compile, and pass the part of go vet that go test runs: for that
// it knows all packages already. All of go vet would look at each dependency again.
func TestGoProgramsInDocuments(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, page := range []string{"docs/go.md", "docs/workers.md"} {
		for _, m := range regexp.MustCompile(
			"(?s)```go\n(package main.*?)```").FindAllStringSubmatch(readText(t, page), -1) {
			seen++
			file := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(file, []byte(m[1]), 0o644))
			out, err := exec.CommandContext(t.Context(), "go", "test", file).CombinedOutput()
			require.NoError(t, err, "%s: %s", page, out)
		}
	}
	require.Equal(t, 3, seen)
}
