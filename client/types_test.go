package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// go doc shows no fields of a type of another package. So each alias says what it is, what it
// needs, and where its fields are.
func TestTypesAreDocumented(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, parser.ParseComments)
	require.NoError(t, err)
	seen := 0
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.TYPE {
			continue
		}
		for _, spec := range group.Specs {
			alias := spec.(*ast.TypeSpec)
			seen++
			of := alias.Type.(*ast.SelectorExpr)
			doc := alias.Doc.Text()
			require.Regexp(t, "^"+alias.Name.Name+" [a-z]", doc)
			require.Contains(t, doc, "["+of.X.(*ast.Ident).Name+"."+of.Sel.Name+"]")
		}
	}
	require.Greater(t, seen, 50)
}
