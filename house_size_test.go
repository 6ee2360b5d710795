package asyncflow_test

import (
	"bytes"
	"go/ast"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostFiles is how many files a package has at most, without tests: more are several packages.
const mostFiles = 45

// largePackages are the packages with more files, and why each is one.
var largePackages = map[string]string{
	".": "the words that all packages and users share: a file is one word with its pure " +
		"rules, and needs hardly another",
	"bench":         "a file is one scenario, and needs only package rig",
	"cmd/asyncflow": "a file is one command, and needs only the shared globals",
	"internal/httpapi": "a file is the calls about one noun; the interface that is generated " +
		"from openapi.yaml has them all as methods of one type",
}

func TestPackagesAreSmall(t *testing.T) {
	t.Parallel()
	large := map[string]bool{}
	for _, p := range listPackages(t) {
		name := local(p.ImportPath)
		if len(p.GoFiles) <= mostFiles {
			continue
		}
		large[name] = true
		assert.NotEmpty(t, largePackages[name], "%s has %d files; the most is %d", name,
			len(p.GoFiles), mostFiles)
	}
	for name := range largePackages {
		assert.True(t, large[name], "%s is no longer large", name)
	}
}

// mostMethods is how many methods a type has at most: more are several types. A type may embed
// others, so that its callers still see one. A type that only embeds a pointer to another one is no
// part of it, as it reaches all of its fields: its methods count there.
const mostMethods = 60

// largeTypes are the types with more methods, and why each is one.
var largeTypes = map[string]string{
	"internal/httpapi.Server": "it implements the interface that is generated from openapi.yaml, " +
		"with a method for each call",
	"client.Client": "a user of the API has one value with a method for each call",
	"..TaskType": "the pure rules about a task type, each in the file of its noun; it is a value " +
		"that is only read",
	"store/internal/trees.followUp": "one transaction, and nothing but it: each kind of row of " +
		"outbox has a type around it, with its functions",
}

func TestTypesAreSmall(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	wrapped := map[string]string{}
	walkGo(t, func(path string, _ []byte, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		of := filepath.ToSlash(filepath.Dir(path)) + "."
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[of+receiver(n)]++
				}
			case *ast.TypeSpec:
				if inner := onlyEmbedded(n); inner != "" {
					wrapped[of+n.Name.Name] = of + inner
				}
			}
			return true
		})
	})
	require.Greater(t, len(methods), 500)
	for name, inner := range wrapped {
		methods[inner] += methods[name]
	}
	for name, n := range methods {
		if why := largeTypes[name]; why == "" {
			assert.LessOrEqual(t, n, mostMethods, "methods of %s", name)
		}
	}
	for name := range largeTypes {
		assert.Greater(t, methods[name], mostMethods, "%s is no longer large", name)
	}
}

// onlyEmbedded returns the type of the same package that a struct embeds by a pointer, if it has no
// other field; else "".
func onlyEmbedded(t *ast.TypeSpec) string {
	s, ok := t.Type.(*ast.StructType)
	if !ok || len(s.Fields.List) != 1 || len(s.Fields.List[0].Names) > 0 {
		return ""
	}
	pointer, ok := s.Fields.List[0].Type.(*ast.StarExpr)
	if !ok {
		return ""
	}
	if inner, ok := pointer.X.(*ast.Ident); ok {
		return inner.Name
	}
	return ""
}

// mostLines is how many lines a file of Go has at most, without tests: more have several nouns.
const mostLines = 350

// longFiles are the files with more lines, and why each is one.
var longFiles = map[string]string{
	"client/types.go":           "a list of the words of the API, with a sentence for each",
	"cmd/asyncflow/cli_help.go": "a list of the flags, with their help",
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	long := map[string]bool{}
	walkGo(t, func(path string, text []byte, _ *ast.File) {
		n := bytes.Count(text, []byte("\n"))
		if strings.HasSuffix(path, "_test.go") || n <= mostLines {
			return
		}
		long[path] = true
		assert.NotEmpty(t, longFiles[path], "%s has %d lines; the most is %d", path, n, mostLines)
	})
	for path := range longFiles {
		assert.True(t, long[path], "%s is no longer long", path)
	}
}

// receiver returns the name of the type that has a method.
func receiver(method *ast.FuncDecl) string {
	of := method.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		default:
			return of.(*ast.Ident).Name
		}
	}
}
