package asyncflow_test

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goText is a text in a file of Go code. Literals that are joined by + are one text, with the
// constants of packages in it; {} stands for all else that is joined to them.
type goText struct{ file, sql string }

// tenantTable finds the name of a tenant's table: {keys}, or schema + ".keys", also by fmt.
var tenantTable = regexp.MustCompile(`\{\w+\}|(\{\}|%s|%\[\d\]s)\.\w`)

// textsOfTenants returns the texts of files that may be about tables of tenants. It leaves out
// those about the schema asyncflow and Citus' own tables only: these aren't distributed.
func textsOfTenants(t *testing.T, files map[string]*ast.File) (texts []goText) {
	t.Helper()
	constants := constantsOf(files)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		r := textReader{t: t, pkg: file.Name.Name, constants: constants}
		ast.Inspect(file, r.visit)
		for _, sql := range r.texts {
			shared := strings.Contains(sql, "asyncflow.") ||
				strings.Contains(sql, "pg_catalog.pg_dist_")
			if !shared || tenantTable.MatchString(sql) {
				texts = append(texts, goText{name, sql})
			}
		}
	}
	return texts
}

// constantsOf returns the values of the constants of packages, by package and name.
func constantsOf(files map[string]*ast.File) map[string]ast.Expr {
	constants := map[string]ast.Expr{}
	for _, file := range files {
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				one := spec.(*ast.ValueSpec)
				for i, value := range one.Values {
					constants[file.Name.Name+"."+one.Names[i].Name] = value
				}
			}
		}
	}
	return constants
}

// textReader reads the texts of a file.
type textReader struct {
	t         *testing.T
	pkg       string
	constants map[string]ast.Expr
	texts     []string
}

// visit is for ast.Inspect.
func (r *textReader) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op != token.ADD {
			return true
		}
		r.texts = append(r.texts, r.join(r.pkg, n, r.visit))
		return false
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			r.texts = append(r.texts, r.unquote(n))
		}
	}
	return true
}

// join returns an expression of a package as one text. It visits what is no text.
func (r *textReader) join(pkg string, e ast.Expr, visit func(ast.Node) bool) string {
	name := ""
	switch e := e.(type) {
	case *ast.ParenExpr:
		return r.join(pkg, e.X, visit)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return r.join(pkg, e.X, visit) + r.join(pkg, e.Y, visit)
		}
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return r.unquote(e)
		}
	case *ast.Ident:
		name = pkg + "." + e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			pkg = x.Name
			name = pkg + "." + e.Sel.Name
		}
	}
	if value := r.constants[name]; value != nil {
		return r.join(pkg, value, func(ast.Node) bool { return false }) // it is read where it is
	}
	ast.Inspect(e, visit)
	return "{}"
}

func (r *textReader) unquote(literal *ast.BasicLit) string {
	text, err := strconv.Unquote(literal.Value)
	require.NoError(r.t, err)
	return text
}
