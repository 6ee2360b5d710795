package asyncflow

import "errors"

// Expressions evaluates the retry intervals that are written as expressions: a
// number of seconds from attempt (1 is the first), status (of the last answer, 0
// when none came), error (its text) and rand (0 ≤ rand < 1), such as
//
//	status == 429 ? 60 : min(2 ** attempt, 3600)
//
// This package only knows that there are such texts. Their implementation is registered from
// outside, like a database driver: it needs a library, which programs that only use the client
// don't need. Both methods are called concurrently.
type Expressions interface {
	// Check explains in one line what is wrong with an expression.
	Check(text string) error
	// Seconds returns the value of an expression after a failed attempt.
	Seconds(text string, f Failure) (float64, error)
}

var expressions Expressions

// RegisterExpressions sets the implementation. Call it once, from an init function, as package
// internal/expression does. Without it, every expression passes validation, since the server
// will check it, and pauses like DefaultRetry.
func RegisterExpressions(e Expressions) {
	if e == nil || expressions != nil {
		panic("asyncflow: RegisterExpressions with nil, or a second time")
	}
	expressions = e
}

var errNoExpressions = errors.New("nothing is registered that reads expressions")

func evaluate(text string, f Failure) (float64, error) {
	if expressions == nil {
		return 0, errNoExpressions
	}
	return expressions.Seconds(text, f)
}
