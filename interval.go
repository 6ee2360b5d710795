package asyncflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxInterval is the longest pause, in seconds.
	MaxInterval = 365 * 24 * 3600
	// MaxExpression bounds the text of an expression, in bytes.
	MaxExpression = 500
	// maxIntervals bounds the length of a list: there are no more pauses in a policy.
	maxIntervals = MaxAttempts
)

// Poly is the rule of growing pauses with jitter: k⁴ + 15 + rand·30·(k+1)
// seconds, where k is the number of retries so far, from 0, and 0 ≤ rand < 1. It
// is the formula that Sidekiq documented for years (its jitter is smaller now,
// https://github.com/sidekiq/sidekiq/wiki/Error-Handling), which goes back to
// delayed_job's 5 + n⁴. Twenty attempts take about 5 days.
const Poly = "poly"

// Interval is the rule for the pauses between attempts, in seconds. In JSON it
// is a number, a list of numbers, or a text:
//
//   - n > 0: 1, 2, 4, … seconds, doubling up to n
//   - n < 0: always |n| seconds
//   - [a, b, c]: a after the first attempt, b after the second, and so on; the
//     last one repeats, so [a] is always a
//   - "poly": see Poly
//   - any other text: an expression; see Expressions
//
// The zero Interval is unset: that of another policy applies.
type Interval struct {
	seconds []float64
	list    bool   // seconds is a list, also with one entry
	rule    string // Poly or an expression; seconds is then empty
}

// Seconds returns the interval of a number, or of a list of several.
func Seconds(s ...float64) Interval { return Interval{seconds: s, list: len(s) > 1} }

// Rule returns the interval of a text: Poly, or an expression.
func Rule(text string) Interval { return Interval{rule: text} }

// IsZero reports whether the interval is unset.
func (i Interval) IsZero() bool { return len(i.seconds) == 0 && i.rule == "" }

func (i Interval) equal(o Interval) bool {
	return i.rule == o.rule && i.list == o.list && slices.Equal(i.seconds, o.seconds)
}

// Pause returns the pause after a failed attempt: 0 to MaxInterval seconds. If an expression
// fails or gives no number of 0 or more, the pause is that of DefaultRetry: a wrong rule must
// not lose a task.
func (i Interval) Pause(f Failure) time.Duration {
	switch {
	case i.rule == Poly:
		k := float64(f.Attempt - 1)
		return pauseOf(k*k*k*k + 15 + f.Rand*30*(k+1))
	case i.rule != "":
		s, err := evaluate(i.rule, f)
		if err != nil || math.IsNaN(s) || math.IsInf(s, 0) || s < 0 {
			return DefaultRetry.Interval.Pause(f)
		}
		return pauseOf(s)
	case len(i.seconds) == 0:
		return 0
	case i.list:
		return pauseOf(i.seconds[min(f.Attempt, len(i.seconds))-1])
	case i.seconds[0] < 0:
		return pauseOf(-i.seconds[0])
	default:
		return pauseOf(min(math.Pow(2, float64(f.Attempt-1)), i.seconds[0]))
	}
}

func pauseOf(seconds float64) time.Duration {
	return time.Duration(min(seconds, MaxInterval) * float64(time.Second))
}

// String returns the interval as it is written in a document: the text as it
// stands, or else JSON.
func (i Interval) String() string {
	if i.rule != "" {
		return i.rule
	}
	text, _ := i.MarshalJSON() // it fails only for NaN and Inf, which no check accepts
	return string(text)
}

// MarshalJSON writes a number, a list, or the text.
func (i Interval) MarshalJSON() ([]byte, error) {
	switch {
	case i.rule != "":
		return marshalText(i.rule)
	case len(i.seconds) == 1 && !i.list:
		return json.Marshal(i.seconds[0])
	}
	return json.Marshal(i.seconds)
}

// marshalText leaves a < as it is, where json.Marshal makes it \u003c.
func marshalText(text string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(text)
	return bytes.TrimSpace(b.Bytes()), err
}

// UnmarshalJSON reads a number, a list of numbers, or a text. Whether a text is
// a valid expression is checked with the policy.
func (i *Interval) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil && text != "" {
		*i = Rule(text)
		return nil
	}
	var n float64
	if json.Unmarshal(b, &n) == nil && string(b) != "null" {
		*i = Seconds(n)
		return nil
	}
	list, ok := readList[float64](b)
	if !ok {
		return fmt.Errorf(`must be a number of seconds or a list of them, `+
			`"poly" or an expression, not %s`, excerpt(b))
	}
	*i = Interval{seconds: list, list: true}
	return nil
}

func (i Interval) check(field string, out *problems) {
	switch {
	case i.rule == Poly:
	case i.rule != "":
		if err := checkExpression(i.rule); err != nil {
			out.add(field, "%v", err)
		}
	case len(i.seconds) > maxIntervals:
		out.add(field, "has %d entries; the limit is %d", len(i.seconds), maxIntervals)
	default:
		i.checkSeconds(field, out)
	}
}

func (i Interval) checkSeconds(field string, out *problems) {
	for _, n := range i.seconds {
		switch {
		case !(math.Abs(n) <= MaxInterval): // also for NaN
			out.add(field, "is %v seconds; the limit is %d (a year)", n, MaxInterval)
		case i.list && n < 0:
			out.add(field, "has a negative entry %v; only a single number may be negative", n)
		case !i.list && n == 0:
			out.add(field, "must not be 0: n > 0 doubles up to n, n < 0 is always |n|")
		}
	}
}

func checkExpression(text string) error {
	switch {
	case len(text) > MaxExpression:
		return fmt.Errorf("is %d bytes long; the limit is %d", len(text), MaxExpression)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return fmt.Errorf("must be UTF-8 without NUL")
	case expressions == nil: // a client program: the server decides
		return nil
	}
	if err := expressions.Check(text); err != nil {
		return fmt.Errorf("is not a valid expression: %w", err)
	}
	return nil
}

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
