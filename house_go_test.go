package asyncflow_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path/filepath"
	"strings"
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

// walkGo calls do with every Go file of the project that people write.
func walkGo(t *testing.T, do func(path string, text []byte, file *ast.File)) {
	seen := 0
	walkFiles(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") || bytes.Contains(text, []byte("// Code generated")) {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		do(path, text, file)
		seen++
	})
	require.Greater(t, seen, 500)
}
