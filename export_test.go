package asyncflow

// SwapExpressions sets what reads expressions and returns what did before.
func SwapExpressions(e Expressions) Expressions {
	before := expressions
	expressions = e
	return before
}

// RandOf is the jitter of a task's attempt.
var RandOf = randOf
