package asyncflow_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// screenLines is how many lines the comment of a room's package has at most. It lists what the
// room exports, so that its exported part can be read on one screen: see ADR 63.
const screenLines = 60

func TestRoomsListWhatTheyExport(t *testing.T) {
	t.Parallel()
	types := map[string]string{} // of the rooms that a Store embeds
	alias := regexp.MustCompile(`(?m)^\t\w+Room += (\w+)\.(\w+)$`)
	for _, m := range alias.FindAllStringSubmatch(readText(t, "store/store.go"), -1) {
		types[m[1]] = m[2]
	}
	require.Len(t, types, 8)
	for _, room := range slices.Concat(storeRooms...) {
		t.Run(room, func(t *testing.T) {
			t.Parallel()
			comment, exports := readRoom(t, room, types[room])
			assert.LessOrEqual(t, strings.Count(comment, "\n"), screenLines)
			assert.Equal(t, exports, listedIn(comment),
				"the comment of the package must list them, by the first word of their files")
		})
	}
}

// readRoom returns the comment of a package, and what it exports, by the first word of the files:
// sorted, without statements (…SQL), which tests of package store read. Of methods it has the ones
// that a Store gets by embedding a type.
func readRoom(t *testing.T, room, embedded string) (comment string, exports map[string][]string) {
	t.Helper()
	all := map[string][]*ast.File{}
	var decls []ast.Decl
	for _, path := range filesOf(t, "store/internal/"+room+"/*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		word, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".go"), "_")
		all[word] = append(all[word], file)
		decls = append(decls, file.Decls...)
		comment += file.Doc.Text()
	}
	owners := embeddedIn(decls, embedded)
	exports = map[string][]string{}
	for word, files := range all {
		names := map[string]bool{}
		for _, file := range files {
			for _, name := range declaredIn(file, owners) {
				if ast.IsExported(name) && !strings.HasSuffix(name, "SQL") {
					names[name] = true
				}
			}
		}
		if len(names) > 0 {
			exports[word] = slices.Sorted(maps.Keys(names))
		}
	}
	return comment, exports
}

// embeddedIn returns the name of a type with the names of all types that it embeds.
func embeddedIn(decls []ast.Decl, name string) map[string]bool {
	structs := map[string]*ast.StructType{}
	for _, decl := range decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				structs[spec.Name.Name], _ = spec.Type.(*ast.StructType)
			}
			return true
		})
	}
	all := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		all[name] = true
		if structs[name] == nil {
			return
		}
		for _, field := range structs[name].Fields.List {
			part := field.Type
			if star, ok := part.(*ast.StarExpr); ok {
				part = star.X
			}
			if is, ok := part.(*ast.Ident); ok && len(field.Names) == 0 {
				add(is.Name)
			}
		}
	}
	add(name)
	return all
}

// declaredIn returns the names that a file declares at its top. Of its methods it returns the ones
// of some types.
func declaredIn(file *ast.File, owners map[string]bool) (names []string) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil || owners[receiver(decl)] {
				names = append(names, decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// listedIn returns the items of the list in a comment: words that begin with one and a colon.
func listedIn(comment string) map[string][]string {
	listed := map[string][]string{}
	items := regexp.MustCompile(`(?m)^  - (\w+): (.+(?:\n    \w.*)*)`)
	for _, item := range items.FindAllStringSubmatch(comment, -1) {
		names := regexp.MustCompile(`\w+`).FindAllString(item[2], -1)
		slices.Sort(names)
		listed[item[1]] = names
	}
	return listed
}
