package asyncflow_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

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
