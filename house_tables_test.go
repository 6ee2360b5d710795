package asyncflow_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tables of cases use t.Run: a case that fails is named, and the cases after it run, too.
func TestTablesUseSubtests(t *testing.T) {
	t.Parallel()
	found := 0
	walkGo(t, func(path string, _ []byte, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			for _, table := range tables(fn) {
				found++
				assert.False(t, failsAtOnce(fn, table), "%s: a table in %s without t.Run", path,
					fn.Name.Name)
			}
		}
	})
	require.Greater(t, found, 50)
}

func TestTableRules(t *testing.T) {
	t.Parallel()
	const setup = "package p\nfunc TestX(t *testing.T) {\nb, err := setup(t)\nfor _, c := range "
	for name, c := range map[string]struct {
		loop  string
		table bool
		fails bool
	}{
		"requires": {`[]struct{ a int }{{1}} { require.Equal(t, c.a, f()) }`, true, true},
		"reports":  {`map[string]struct{ a int }{} { if f() { t.Errorf("x") } }`, true, true},
		"subtests": {`[]struct{}{} { t.Run(c.name, func(t *testing.T) { require.Nil(t, c) }) }`,
			true, false},
		"own":       {`[]struct{}{} { d := setup(t); require.Nil(t, d.call(c)) }`, true, true},
		"bundle":    {`[]struct{}{} { require.Nil(t, b.call(c)) }`, true, false},
		"goroutine": {`[]struct{}{} { wg.Go(func() { assert.Nil(t, c) }) }`, true, false},
		"fixture":   {`[]struct{}{} { add(c) }`, true, false},
		"names":     {`[]string{"a"} { require.Nil(t, c) }`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), "x.go", setup+c.loop+"\n}", 0)
			require.NoError(t, err)
			fn := file.Decls[0].(*ast.FuncDecl)
			found := tables(fn)
			require.Equal(t, c.table, len(found) == 1)
			if c.table {
				require.Equal(t, c.fails, failsAtOnce(fn, found[0]))
			}
		})
	}
}

// tables returns the loops of a function over a slice or map of structs that is written there.
func tables(fn *ast.FuncDecl) []*ast.RangeStmt {
	var found []*ast.RangeStmt
	ast.Inspect(fn, func(n ast.Node) bool {
		loop, ok := n.(*ast.RangeStmt)
		if !ok {
			return true
		}
		list, ok := loop.X.(*ast.CompositeLit)
		if !ok {
			return true
		}
		var elem ast.Expr
		switch of := list.Type.(type) {
		case *ast.ArrayType:
			elem = of.Elt
		case *ast.MapType:
			elem = of.Value
		}
		if _, ok := elem.(*ast.StructType); ok {
			found = append(found, loop)
		}
		return true
	})
	return found
}

// failsAtOnce reports whether a failed case ends the whole test. A loop that uses a value made with
// the test's t may do so, because such a value reports its own failures to that t.
func failsAtOnce(fn *ast.FuncDecl, table *ast.RangeStmt) bool {
	made := madeBefore(fn, table.Pos())
	asserts, exempt := false, false
	ast.Inspect(table.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			exempt = exempt || made[n.Name]
		case *ast.SelectorExpr:
			of, ok := n.X.(*ast.Ident)
			asserts = asserts || ok && (of.Name == "require" || of.Name == "assert" ||
				of.Name == "t" && (strings.HasPrefix(n.Sel.Name, "Error") ||
					strings.HasPrefix(n.Sel.Name, "Fatal")))
		}
		return true
	})
	return asserts && !exempt
}

// madeBefore returns the names of values that were made with t before a place of a function:
// results of calls with t or on such a value, and parameters beside t.
func madeBefore(fn *ast.FuncDecl, place token.Pos) map[string]bool {
	made := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		if n == nil || n.Pos() >= place {
			return false
		}
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, value := range n.Rhs {
				if makesWithT(value, made) {
					addNames(made, n.Lhs)
				}
			}
		case *ast.FuncType:
			if params := paramNames(n); slices.Contains(params, "t") {
				for _, name := range params {
					made[name] = name != "t"
				}
			}
		}
		return true
	})
	return made
}

// makesWithT reports whether a value is the result of a call with t, or a value made with t.
func makesWithT(value ast.Expr, made map[string]bool) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	if method, ok := call.Fun.(*ast.SelectorExpr); ok {
		if of, ok := method.X.(*ast.Ident); ok && made[of.Name] {
			return true
		}
	}
	return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		name, ok := arg.(*ast.Ident)
		return ok && name.Name == "t"
	})
}

func paramNames(fn *ast.FuncType) []string {
	var names []string
	for _, param := range fn.Params.List {
		for _, name := range param.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

func addNames(names map[string]bool, targets []ast.Expr) {
	for _, target := range targets {
		if name, ok := target.(*ast.Ident); ok && name.Name != "_" && name.Name != "err" {
			names[name.Name] = true
		}
	}
}
