package expression

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// maxNodes bounds the numbers, names, operators and calls of an expression.
const maxNodes = 250

var (
	variables = []string{"attempt", "status", "error", "rand"}
	functions = []string{"abs", "ceil", "floor", "max", "min", "round"}
	operators = []string{"+", "-", "*", "/", "%", "**", "^", "==", "!=", "<", "<=", ">", ">=",
		"!", "not", "&&", "and", "||", "or", "in", "contains", "startsWith", "endsWith"}
)

// admit accepts a text that uses only what is listed here. It runs before the library's own
// check, which already executes some of the rest: it compiles regular expressions.
func admit(text string) error {
	tree, err := parser.Parse(text)
	if err != nil {
		return err
	}
	g := guard{left: maxNodes}
	if err := g.node(tree.Node); err != nil {
		return err.Bind(tree.Source)
	}
	return nil
}

// guard walks a tree and stops at the first node that isn't allowed.
type guard struct {
	// left is the number of nodes that may still come. Each counts as often as it is evaluated:
	// for a < b < c the parser puts b into the tree twice, so nested chains would double the work
	// with each level.
	left int
}

func (g *guard) node(n ast.Node) *file.Error {
	if g.left--; g.left < 0 {
		return refuse(n, "more than %d operations", maxNodes)
	}
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode:
		return nil
	case *ast.IdentifierNode:
		if !slices.Contains(variables, n.Value) {
			return refuse(n, "unknown name %s", n.Value)
		}
		return nil
	case *ast.UnaryNode:
		return g.operation(n, n.Operator, n.Node)
	case *ast.BinaryNode:
		if list, ok := n.Right.(*ast.ArrayNode); ok && n.Operator == "in" {
			return g.operation(n, n.Operator, append([]ast.Node{n.Left}, list.Nodes...)...)
		}
		return g.operation(n, n.Operator, n.Left, n.Right)
	case *ast.ConditionalNode:
		return g.nodes(n.Cond, n.Exp1, n.Exp2)
	case *ast.BuiltinNode:
		if !slices.Contains(functions, n.Name) {
			return refuse(n, "unknown function %s", n.Name)
		}
		return g.nodes(n.Arguments...)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return refuse(callee, "unknown function %s", callee.Value)
		}
	}
	return refuse(n,
		"only arithmetic, comparisons, conditions, lists after in, and the functions %s are known",
		strings.Join(functions, ", "))
}

func (g *guard) operation(n ast.Node, operator string, operands ...ast.Node) *file.Error {
	if !slices.Contains(operators, operator) {
		return refuse(n, "unknown operator %s", operator)
	}
	return g.nodes(operands...)
}

func (g *guard) nodes(all ...ast.Node) *file.Error {
	for _, n := range all {
		if err := g.node(n); err != nil {
			return err
		}
	}
	return nil
}

func refuse(n ast.Node, format string, args ...any) *file.Error {
	return &file.Error{Location: n.Location(), Message: fmt.Sprintf(format, args...)}
}

// checkConditions refuses a condition that gives a number in one case and a text in the other:
// the library treats it as a value of any type.
func checkConditions(p *vm.Program) error {
	var v conditions
	tree := p.Node()
	if ast.Walk(&tree, &v); v.mixed != nil {
		return refuse(v.mixed, "the two cases are of different types").Bind(p.Source())
	}
	return nil
}

type conditions struct{ mixed ast.Node }

func (v *conditions) Visit(node *ast.Node) {
	if n, ok := (*node).(*ast.ConditionalNode); ok && v.mixed == nil &&
		n.Type().Kind() == reflect.Interface {
		v.mixed = n.Exp1 // its own position is its end
	}
}
