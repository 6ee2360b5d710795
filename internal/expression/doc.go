// Package expression reads the retry intervals that are written as expressions,
// in the language of github.com/expr-lang/expr, and registers itself with package
// asyncflow. Import it blank.
//
// The texts come from untrusted callers, so only a part of the language is allowed: numbers,
// texts, the four names attempt, status, error and rand, arithmetic, comparisons, conditions,
// "in" with a list, and six functions. There are no loops, variables, ranges or regular
// expressions. A text is at most 500 bytes, and each of its nodes is evaluated once. So time and
// memory are bounded closely, whatever the text.
package expression
