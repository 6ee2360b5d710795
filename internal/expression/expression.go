package expression

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/asyncflow/asyncflow"
)

const (
	maxPrograms = 1000   // in the cache, some kilobytes each
	maxMemory   = 10_000 // elements that one evaluation may make
)

func init() { asyncflow.RegisterExpressions(&reader{programs: map[string]*vm.Program{}}) }

// names are the names that an expression may use.
type names struct {
	Attempt float64 `expr:"attempt"`
	Status  float64 `expr:"status"`
	Error   string  `expr:"error"`
	Rand    float64 `expr:"rand"`
}

// reader compiles each text once, as long as it stays in the cache.
type reader struct {
	mu       sync.RWMutex
	programs map[string]*vm.Program
}

// Check explains what is wrong with an expression, with line and column.
func (r *reader) Check(text string) error {
	_, err := r.program(text)
	return err
}

// Seconds evaluates an expression.
func (r *reader) Seconds(text string, f asyncflow.Failure) (float64, error) {
	p, err := r.program(text)
	if err != nil {
		return 0, err
	}
	machine := vm.VM{MemoryBudget: maxMemory}
	value, err := machine.Run(p, names{Attempt: float64(f.Attempt), Status: float64(f.Status),
		Error: f.Error, Rand: f.Rand})
	if err != nil {
		return 0, oneLine(err)
	}
	return value.(float64), nil // so says AsFloat64
}

// program returns the program of a text. When the cache is full, it evicts any other program.
func (r *reader) program(text string) (*vm.Program, error) {
	r.mu.RLock()
	p := r.programs[text]
	r.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	p, err := compile(text)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.programs {
		if len(r.programs) < maxPrograms {
			break
		}
		delete(r.programs, other)
	}
	r.programs[text] = p
	return p, nil
}

// compile compiles a text that uses only the allowed part of the language.
func compile(text string) (p *vm.Program, err error) {
	defer func() { // a bug of the library must not end the server
		if fault := recover(); fault != nil {
			p, err = nil, fmt.Errorf("it can't be read: %v", fault)
		}
	}()
	if len(text) > asyncflow.MaxExpression {
		return nil, fmt.Errorf("it is %d bytes long; the limit is %d", len(text),
			asyncflow.MaxExpression)
	}
	if err := admit(text); err != nil {
		return nil, oneLine(err)
	}
	p, err = expr.Compile(text, options...)
	if err != nil {
		return nil, oneLine(err)
	}
	if err = checkConditions(p); err != nil {
		return nil, oneLine(err)
	}
	return p, nil
}

// options make every number a float64: a mixture of integers and floats would be of no known type,
// and errors would appear only at evaluation.
var options = func() []expr.Option {
	all := []expr.Option{expr.Env(names{}), expr.AsFloat64(), expr.MaxNodes(maxNodes),
		expr.Patch(floats{}), expr.Function("%", mod, math.Mod), expr.DisableAllBuiltins()}
	for _, name := range functions {
		all = append(all, expr.EnableBuiltin(name))
	}
	return all
}()

// floats turns the integers of a tree into floats, and each % into a call of mod. With
// expr.Operator the library would do that once it knows the types of both sides, and leave a
// condition inside them without a type.
type floats struct{}

func (floats) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IntegerNode:
		ast.Patch(node, &ast.FloatNode{Value: float64(n.Value)})
	case *ast.BinaryNode:
		if n.Operator == "%" {
			ast.Patch(node, &ast.CallNode{
				Callee:    &ast.IdentifierNode{Value: "%"},
				Arguments: []ast.Node{n.Left, n.Right},
			})
		}
	}
}

// mod implements %, which the library offers only for integers.
func mod(args ...any) (any, error) { return math.Mod(args[0].(float64), args[1].(float64)), nil }

// oneLine leaves out the drawing in an error of the library.
func oneLine(err error) error {
	var e *file.Error
	if errors.As(err, &e) && e.Line > 0 {
		return fmt.Errorf("%s (%d:%d)", strings.Join(strings.Fields(e.Message), " "), e.Line,
			e.Column+1)
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(strings.Replace(first, "expected float64, but got",
		"its value must be a number, not", 1))
}
