package asyncflow_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/asyncflow/asyncflow"

// arrows lists our packages, each with our packages that it may import; "." is the root. A name
// that ends in /... stands for everything below it too.
var arrows = map[string][]string{
	".":          {},
	"migrations": {},
	"auth":       {"internal/sleep", "."},
	"callbacks":  {"callbacks/internal/transport", "internal/signing", "."},
	"store":      {"store/internal/...", "."},
	"dispatcher": {"internal/sleep", "store", "dispatcher/internal/...", "."},
	"governance": {"internal/sleep", "store", "."},
	"client/api": {"."},
	"client":     {"client/api", "internal/sleep", "."},
	"worker": {"client", "client/api", "internal/claimed", "internal/signing",
		"internal/sleep", "."},
	"internal/httpapi": {"auth", "governance", "callbacks", "dispatcher", "store", "client/api",
		"internal/coalesce", "internal/docspage", "internal/linkpage", "internal/signing",
		"internal/sleep", "internal/tracing", "internal/httpapi/internal/...", "."},
	"internal/metrics": {"governance", "internal/coalesce", "store", "."},
	"internal/pgfetch": {},
	"internal/devpg":   {"internal/pgfetch", "."},
	"internal/pgtest":  {"internal/devpg", "."},
	"cmd/asyncflow":    {"..."},
	"examples/...":     {"client", "worker", "."}, // and packages of the same example
	"bench/...":        {"..."},

	"store/internal/lowwater": {},
	"store/internal/postgres": {"."},
	"store/internal/schema":   {"migrations", "store/internal/postgres", "."},
	"store/internal/config":   {"store/internal/postgres", "store/internal/schema", "."},
	"store/internal/news":     {"store/internal/config", "store/internal/postgres"},
	"store/internal/catalog":  {"internal/expression", "internal/sleep", "store/internal/...", "."},
	"store/internal/audit":    {"store/internal/...", "."}, // see TestStoreRooms
	"store/internal/records":  {"store/internal/...", "."},
	"store/internal/hot":      {"store/internal/...", "."},
	"store/internal/trees":    {"store/internal/...", "."},
	"store/internal/counts":   {"store/internal/...", "."},
	"store/internal/history":  {"store/internal/...", "."},
	"store/internal/claims":   {"store/internal/...", "."},
	"store/internal/tasks":    {"store/internal/...", "."},
	"store/internal/settings": {"migrations", "internal/sleep", "internal/timetable",
		"store/internal/...", "."},
	"store/internal/upkeep":  {"internal/timetable", "store/internal/...", "."},
	"store/internal/checkup": {"store/internal/postgres", "store/internal/schema"},

	"callbacks/internal/transport": {},
	"dispatcher/internal/agenda":   {},
	"dispatcher/internal/batch":    {},
	"dispatcher/internal/ledger":   {"store", "."},
	"dispatcher/internal/pool":     {},
	"dispatcher/internal/rates":    {},
	"dispatcher/internal/slots":    {},

	"internal/claimed":    {},
	"internal/coalesce":   {},
	"internal/expression": {"."},
	"internal/repeats":    {},
	"internal/sleep":      {},
	"internal/tracing":    {"."},
	"internal/timetable":  {"."},
	"internal/signing":    {"."},
	"internal/docspage":   {},
	"internal/linkpage":   {"."},
	"internal/openapi":    {"."},
	"web":                 {},
	"internal/console":    {"auth", "web", "."},

	"internal/httpapi/internal/contract":    {"auth", "client/api", "internal/openapi", "."},
	"internal/httpapi/internal/cursor":      {"store", "."},
	"internal/httpapi/internal/deniedcalls": {"store", "."},
	"internal/httpapi/internal/listener":    {},
	"internal/httpapi/internal/ratelimit":   {},
	"internal/httpapi/internal/share":       {"."},

	"internal/workercheck": {"callbacks", "client/api", "internal/signing", "internal/sleep", "."},

	"internal/contracttest": {"internal/httpapi", "internal/openapi", "."},
	"internal/document":     {"client", "internal/expression", "internal/timetable", "."},
	"internal/node": {"auth", "callbacks", "dispatcher", "governance", "internal/coalesce",
		"internal/console", "internal/httpapi", "internal/metrics", "internal/tracing",
		"store", "."},
	"internal/testnode": {"auth", "callbacks", "internal/console", "internal/contracttest",
		"internal/httpapi", "internal/node", "internal/pgtest", "store", "."},
	"internal/browsertest": {},
	"internal/longform":    {},
	"internal/otlptest":    {},
	"web/build":            {},

	"internal/openapi/compact": {"internal/openapi", "."},
}

// standardOnly are our packages that import nothing but the standard library.
var standardOnly = []string{".", "migrations"}

// onlyBy names, for a library, our packages that may import it.
var onlyBy = map[string][]string{
	"github.com/gofiber/fiber/...":  {"internal/httpapi", "internal/console"},
	"github.com/prometheus/...":     {"internal/metrics"},
	"github.com/expr-lang/expr/...": {"internal/expression"},
	"go.opentelemetry.io/...":       {"internal/tracing", "internal/otlptest"},
	"github.com/robfig/cron/...":    {"governance", "internal/timetable"},
	"github.com/jackc/pgx/...": {"store/...", "internal/devpg", "internal/pgtest",
		"bench/..."},

	"github.com/fergusstrange/embedded-postgres/...": {"internal/pgfetch"},
}

// notBy names, for a library, our packages that must not import it.
var notBy = map[string][]string{
	"net/http/...": {".", "dispatcher", "governance", "store/..."},
}

// sqlIn are the packages that may hold SQL.
var sqlIn = []string{"store/...", "migrations", "internal/devpg", "internal/pgtest", "bench/..."}

var sql = regexp.MustCompile(`(?s)\bSELECT\b.*\bFROM\b|\bINSERT\s+INTO\b|` +
	`\bDELETE\s+FROM\b|\bUPDATE\b.*\bSET\b`)

// goPackage is the output of go list for a package.
type goPackage struct {
	ImportPath, Dir         string
	GoFiles, IgnoredGoFiles []string
	Imports                 []string
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	require.NotEmpty(t, packages)
	for _, p := range packages {
		for _, wrong := range wrongImports(p) {
			t.Error(wrong)
		}
		if !matches(sqlIn, local(p.ImportPath)) {
			for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
				if !strings.HasSuffix(file, "_test.go") {
					checkNoSQL(t, filepath.Join(p.Dir, file))
				}
			}
		}
	}
}

// listPackages returns the packages of the project. They are listed once for all tests.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	packages, err := goPackages()
	require.NoError(t, err)
	return packages
}

var goPackages = sync.OnceValues(func() (packages []goPackage, err error) {
	cmd := exec.Command("go", "list", "-tags=bundle",
		"-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,Imports", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
})

// wrongImports returns the imports of a package that the tables above don't allow.
func wrongImports(p goPackage) (wrong []string) {
	name := local(p.ImportPath)
	rule, listed := ruleFor(name)
	if !listed {
		return []string{fmt.Sprintf("package %s is not listed: if it belongs there, add it to "+
			"arrows in architecture_test.go, on purpose", name)}
	}
	for _, path := range p.Imports {
		if imported := local(path); imported != "" {
			if !matches(arrows[rule], imported) && !sameExample(name, imported) {
				wrong = append(wrong, fmt.Sprintf("%s must not import %s", name, imported))
			}
			continue
		}
		if slices.Contains(standardOnly, name) && !isStandard(path) {
			wrong = append(wrong, fmt.Sprintf("%s must not import %s: it imports the standard "+
				"library only",
				name, path))
		}
		for library, users := range onlyBy {
			if matches([]string{library}, path) && !matches(users, name) {
				wrong = append(wrong, fmt.Sprintf("%s must not import %s: only %s may", name, path,
					strings.Join(users, ", ")))
			}
		}
		for library, others := range notBy {
			if matches([]string{library}, path) && matches(others, name) {
				wrong = append(wrong, fmt.Sprintf("%s must not import %s", name, path))
			}
		}
	}
	return wrong
}

// ruleFor returns the key of arrows that a package falls under.
func ruleFor(name string) (string, bool) {
	for rule := range arrows {
		if matches([]string{rule}, name) {
			return rule, true
		}
	}
	return "", false
}

// local returns the path of one of our packages below the module, "." for the root, or "" for
// any other package.
func local(path string) string {
	if path == module {
		return "."
	}
	below, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	return below
}

// matches reports whether a path is one of the patterns, or below one that ends in "/...". The
// pattern "..." matches everything.
func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		base, deep := strings.CutSuffix(pattern, "/...")
		return pattern == "..." || path == base || deep && strings.HasPrefix(path, base+"/")
	})
}

// sameExample reports whether both packages belong to the same example.
func sameExample(a, b string) bool {
	of := func(path string) string {
		parts := strings.SplitN(path, "/", 3)
		if len(parts) < 2 || parts[0] != "examples" {
			return ""
		}
		return parts[1]
	}
	return of(a) != "" && of(a) == of(b)
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// checkNoSQL checks the string literals of a file; a concatenation counts as one.
func checkNoSQL(t *testing.T, path string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := literal(e)
		if ok && sql.MatchString(text) {
			t.Errorf("%s: SQL stands in %s only", files.Position(n.Pos()),
				strings.Join(sqlIn, ", "))
		}
		return !ok
	})
}

// opensDatabase finds what opens a connection to Postgres, or begins to.
var opensDatabase = regexp.MustCompile(
	`\b(pgx\.Connect|pgxpool\.New|sql\.Open|pgconn\.Connect|(pgx|pgxpool|pgconn)\.ParseConfig)\(`)

// Connections are opened where they get their settings, the search path above all. Connections of a
// server that only we know are opened elsewhere, too.
func TestConnectionsAreOpenedInOnePlace(t *testing.T) {
	t.Parallel()
	found := 0
	walkFiles(t, func(path string, text []byte) {
		switch {
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"),
			strings.HasPrefix(path, "internal/devpg/"), strings.HasPrefix(path, "internal/pgtest/"),
			strings.HasPrefix(path, "bench/"):
		case strings.HasPrefix(path, "store/internal/postgres/"):
			found += len(opensDatabase.FindAll(text, -1))
		default:
			require.NotRegexp(t, opensDatabase, string(text), path)
		}
	})
	require.Equal(t, 2, found, "one for pools, one for single connections")
}

// literal returns the text of a string literal, or of a concatenation that contains one.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok1 := literal(e.X)
		right, ok2 := literal(e.Y)
		return left + right, e.Op == token.ADD && (ok1 || ok2)
	}
	return "", false
}

// Any role of a database can take any advisory lock. Tests of ours may take them.
func TestNoAdvisoryLocks(t *testing.T) {
	takes := regexp.MustCompile(`pg_(try_)?advisory|NewPostgresSessionLocker`)
	walkFiles(t, func(path string, text []byte) {
		ext := filepath.Ext(path)
		if ext != ".sql" && ext != ".go" || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(filepath.ToSlash(path), "internal/pgtest/") {
			return
		}
		assert.NotRegexp(t, takes, string(text), path)
	})
}

// Programs that only talk to asyncflow don't import its database or its HTTP server.
func TestSDKsAreSmall(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./client",
		"./worker").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), module+"/worker")
	for _, heavy := range []string{"github.com/jackc/pgx", "github.com/gofiber/fiber",
		"github.com/valyala/fasthttp", "github.com/prometheus", "go.opentelemetry.io", module + "/store",
		module + "/callbacks"} {
		require.NotContains(t, string(out), heavy)
	}
}

// The rules accept what they should, and refuse the rest.
func TestArchitectureRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, imported string
		ok             bool
	}{
		{".", "fmt", true},
		{".", "net/url", true},
		{".", "net/http", false},
		{".", "github.com/google/uuid", false},
		{".", module + "/store", false},
		{"migrations", "embed", true},
		{"migrations", module, false},
		{"migrations", "github.com/pressly/goose/v3", false},
		{"auth", module, true},
		{"auth", module + "/store", false},
		{"callbacks", "net/http", true},
		{"callbacks", module + "/dispatcher", false},
		{"store/internal/settings", module + "/migrations", true},
		{"store", "github.com/jackc/pgx/v5/pgxpool", true},
		{"store/internal/catalog", module + "/internal/expression", true},
		{"store/internal/catalog", "github.com/expr-lang/expr", false},
		{"client", module + "/internal/expression", false},
		{"client", module + "/internal/timetable", false},
		{"store/internal/upkeep", "github.com/robfig/cron/v3", false},
		{"store", "net/http", false},
		{"store/internal/settings", "net/http", false},
		{"dispatcher", module + "/store", true},
		{"dispatcher", module + "/callbacks", false},
		{"dispatcher", "net/http/httptrace", false},
		{"dispatcher", "github.com/jackc/pgx/v5", false},
		{"governance", "net/http", false},
		{"governance", module + "/dispatcher", false},
		{"client", module + "/client/api", true},
		{"client/api", module + "/client", false},
		{"worker", module + "/client", true},
		{"worker", module + "/callbacks", false},
		{"internal/signing", module + "/callbacks", false},
		{"internal/httpapi", "github.com/gofiber/fiber/v2", true},
		{"internal/httpapi", module + "/internal/console", false},
		{"internal/console", module + "/internal/httpapi", false},
		{"store", module + "/dispatcher", false},
		{"internal/httpapi", "github.com/jackc/pgx/v5", false},
		{"client/api", "github.com/gofiber/fiber/v2/middleware/cors", false},
		{"internal/pgtest", module + "/internal/devpg", true},
		{"internal/devpg", module + "/internal/pgtest", false},
		{"cmd/asyncflow", module + "/internal/httpapi", true},
		{"cmd/asyncflow", "github.com/gofiber/fiber/v2", false},
		{"cmd/asyncflow", "github.com/jackc/pgx/v5", false},
		{"cmd/other", "fmt", false}, // not listed
		{"examples/thumbnails/cmd/thumbnails", module + "/examples/thumbnails", true},
		{"examples/thumbnails", module + "/client", true},
		{"examples/thumbnails", module + "/client/api", false},
		{"examples/thumbnails", module + "/examples/other", false},
		{"examples/thumbnails", module + "/store", false},
		{"bench/load", module + "/dispatcher", true},
		{"bench", "github.com/jackc/pgx/v5", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := wrongImports(goPackage{ImportPath: strings.TrimSuffix(module+"/"+c.name, "/."),
				Imports: []string{c.imported}})
			require.Equal(t, c.ok, len(wrong) == 0, "%s imports %s: %q", c.name, c.imported, wrong)
		})
	}
	require.Contains(t, wrongImports(goPackage{ImportPath: module + "/cmd/other"})[0],
		"package cmd/other is not listed: if it belongs there, add it to arrows in "+
			"architecture_test.go")
	for text, is := range map[string]bool{
		"SELECT id\nFROM t":       true,
		"INSERT INTO t":           true,
		"DELETE FROM t":           true,
		"UPDATE t\nSET a = 1":     true,
		"select one from these":   false,
		"UPDATE":                  false,
		"nothing to INSERT there": false,
	} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, is, sql.MatchString(text))
		})
	}
}
