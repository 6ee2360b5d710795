// Package expression reads the retry intervals that are written as expressions,
// in the language of github.com/expr-lang/expr, and registers itself with package
// asyncflow. Import it blank.
//
// The texts come from strangers, so only a part of the language is let through:
// numbers, texts, the four names attempt, status, error and rand, arithmetic,
// comparisons, conditions, "in" with a list, and six functions. There are no
// loops, no variables, no ranges and no regular expressions, and what is written
// in 500 bytes is evaluated node by node, once. So neither time nor memory can
// grow beyond a small bound, whatever the text says.
package expression
