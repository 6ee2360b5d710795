package asyncflow_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sleepers are the tests that call time.Sleep, and why. Other tests wait for a signal: a sleep is
// too short on a busy machine, and too long on a quiet one.
var sleepers = map[string]string{
	"badworkers_test.go":         "the sleep is the work of a worker",
	"endpoints_test.go":          "the sleep is the work of a slow worker",
	"lease_limited_test.go":      "the sleep is the work of a delivery, so that some overlap",
	"lease_suspend_test.go":      "the sleep is the work of a delivery, and the time without any",
	"exchange_test.go":           "the sleep is a write that returns late",
	"server_connections_test.go": "the sleep is what makes a client slow",
	"role_migrate_test.go":       "the sleep is how long a lock is held",
	"submit_test.go":             "the sleep is how long a lock is held",
	"tenant_quota_test.go":       "it waits as long as Retry-After says",
	"lease_old_snapshot_test.go": "nothing tells when a lease will look at everything",
	"claim_bench_test.go":        "a benchmark, in which nothing tells that a claim waits",
}

// Tests wait for signals. In a bubble of synctest the clock is the test's own, so they may sleep.
func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	walkGo(t, func(path string, text []byte, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") ||
			bytes.Contains(text, []byte(`"testing/synctest"`)) ||
			sleepers[filepath.Base(path)] != "" {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
				if of, ok := call.X.(*ast.Ident); ok {
					assert.NotEqual(t, "time", of.Name, "%s waits by time.Sleep", path)
				}
			}
			return true
		})
	})
}

// Lines end by column 100, with tabs of four. Tags, directives, and texts that can't be broken may
// be longer, but not the SQL of the store.
func TestLinesOfGo(t *testing.T) {
	t.Parallel()
	var long []string
	walkGo(t, func(path string, text []byte, _ *ast.File) {
		raw := map[int]bool{}
		if !strings.HasPrefix(path, "store/") || strings.HasSuffix(path, "_test.go") {
			raw = rawLines(text)
		}
		for i, line := range strings.Split(string(text), "\n") {
			width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			start := strings.TrimLeft(line, "\t")
			unbroken := raw[i+1] || strings.HasPrefix(start, `"`) ||
				strings.HasPrefix(start, "//go:") || strings.HasSuffix(line, "`")
			if width > 100 && !unbroken {
				long = append(long, fmt.Sprintf("%s:%d", path, i+1))
			}
		}
	})
	assert.Empty(t, long, "they are longer than 100 columns")
}

// rawLines returns the lines of a Go file that have a part of a raw string.
func rawLines(text []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && literal[0] == '`' {
			for i := range 1 + strings.Count(literal, "\n") {
				lines[file.Line(pos)+i] = true
			}
		}
	}
}

// mostNested and mostTuples are bounds, each just above what is there: lower them when they can be.
const (
	// Of the checks of an error, how many take "err == nil" for the condition. It suits an attempt
	// that may fail, such as to read a text as a number; a normal path isn't inside an if.
	mostNested = 0.02
	// How many assignments of several values to as many variables stand in 1,000 lines.
	mostTuples = 2.4
)

// The normal path of a function goes down its left edge, a statement a line.
func TestNormalPathIsNotNested(t *testing.T) {
	t.Parallel()
	var nested, checks, tuples, lines float64
	walkGo(t, func(path string, text []byte, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		lines += float64(bytes.Count(text, []byte("\n")))
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				is, known := checksError(n.Cond)
				if known {
					checks++
				}
				if is == token.EQL {
					nested++
				}
			case *ast.AssignStmt:
				if len(n.Lhs) > 1 && len(n.Lhs) == len(n.Rhs) {
					tuples++
				}
			}
			return true
		})
	})
	require.Greater(t, checks, 2000.0)
	assert.LessOrEqual(t, nested/checks, mostNested, "%v of %v checks are err == nil: return early",
		nested, checks)
	assert.LessOrEqual(t, 1000*tuples/lines, mostTuples, "%v assign several values at once", tuples)
}

// checksError reports whether a condition compares err with nil and nothing else, and how.
func checksError(cond ast.Expr) (how token.Token, is bool) {
	compared, ok := cond.(*ast.BinaryExpr)
	if !ok {
		return token.ILLEGAL, false
	}
	left, ok := compared.X.(*ast.Ident)
	right, isName := compared.Y.(*ast.Ident)
	if !ok || !isName || left.Name != "err" || right.Name != "nil" {
		return token.ILLEGAL, false
	}
	return compared.Op, true
}

// A signature of several lines has its parameters on lines of their own, between "func name(" and
// ") results {". One with a struct or an interface in it may be written otherwise.
func TestLongSignaturesHaveOneForm(t *testing.T) {
	t.Parallel()
	long := 0
	walkGo(t, func(path string, text []byte, file *ast.File) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			signature := string(text[f.Pos()-file.FileStart : f.Body.Lbrace-file.FileStart])
			if !strings.Contains(signature, "\n") {
				continue
			}
			long++
			assert.True(t, hasLongForm(signature), "%s: %s", path, signature)
		}
	})
	require.Greater(t, long, 500)
}

func TestLongForm(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"func f(\n\ta int,\n) ", "func (x X) f(\n\ta int, b int,\n\tc int,\n) (d int) ",
		"func f(of struct {\n\ta int\n}) ",
	} {
		assert.True(t, hasLongForm(good), good)
	}
	for _, bad := range []string{
		"func f(a int,\n\tb int) ", "func f(a int) (\n\tb int) ", "func f(\n\ta int) ",
		"func f(\n\ta int,\n) (\n\tb int) ",
	} {
		assert.False(t, hasLongForm(bad), bad)
	}
}

var (
	longForm = regexp.MustCompile(`^func (\(.+\) )?\w+(\[.+\])?\(\n(\t.*[,(]\n)+\) .*$`)
	withType = regexp.MustCompile(`(struct|interface) ?\{`)
)

func hasLongForm(signature string) bool {
	return longForm.MatchString(signature) || withType.MatchString(signature)
}

// unclear are names that tell a reader nothing.
var unclear = regexp.MustCompile(`(?i)^(spot|typed|rolled|told|full|double|followed|onward|` +
	`knowledge|fate|churn|doubt|doubtful|sure|tellLinger|leftToDo|aside|turns|stumbled|calm|metricsPlace)$`)

// Types, functions and fields have names that explain themselves, and a method is not called "of"
// or "at". It holds for declarations of programs; a local variable has its few lines around it.
func TestNamesExplainThemselves(t *testing.T) {
	t.Parallel()
	walkGo(t, func(path string, _ []byte, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		check := func(name *ast.Ident) {
			assert.NotRegexp(t, unclear, name.Name, "%s: name it after what it is", path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Name)
				isPart := n.Recv != nil && (n.Name.Name == "of" || n.Name.Name == "at")
				assert.False(t, isPart, "%s has a method %s", path, n.Name.Name)
			case *ast.TypeSpec:
				check(n.Name)
			case *ast.StructType:
				for _, field := range n.Fields.List {
					for _, name := range field.Names {
						check(name)
					}
				}
			}
			return true
		})
	})
}

// A name of another package says which one.
func TestNoDotImports(t *testing.T) {
	t.Parallel()
	walkGo(t, func(path string, _ []byte, file *ast.File) {
		for _, i := range file.Imports {
			assert.False(t, i.Name != nil && i.Name.Name == ".", "%s imports %s by a dot", path,
				i.Path.Value)
		}
	})
}

// walkGo calls do with every Go file of the project that people write. They are parsed once for all
// tests, which don't change them.
func walkGo(t *testing.T, do func(path string, text []byte, file *ast.File)) {
	files, err := goFiles()
	require.NoError(t, err)
	require.Greater(t, len(files), 500)
	for _, f := range files {
		do(f.path, f.text, f.file)
	}
}

type goFile struct {
	textFile
	file *ast.File
}

var goFiles = sync.OnceValues(func() (files []goFile, err error) {
	texts, err := textFiles()
	if err != nil {
		return nil, err
	}
	for _, f := range texts {
		if !strings.HasSuffix(f.path, ".go") || bytes.Contains(f.text, []byte("// Code generated")) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.path, f.text,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, goFile{f, file})
	}
	return files, nil
})
