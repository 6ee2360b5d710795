package expression

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expr-lang/expr/vm"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

var busy = asyncflow.Failure{Attempt: 3, Status: 429, Error: "slow down", Rand: 0.5}

func newReader() *reader { return &reader{programs: map[string]*vm.Program{}} }

func TestSeconds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"30":                      30,
		" 0x10 // in hexadecimal": 16,
		"attempt\n* 2":            6,
		"2 ** attempt":            8,
		"2 ^ attempt":             8,
		"7 % attempt":             1,
		"-7 % attempt":            -1,
		// conditions on either side of it keep their types
		"(attempt / (status > 1 ? attempt % 2 : 3)) % 4": 3,
		"attempt / 2":                                  1.5,
		"min(2 ** attempt, 5, rand)":                   0.5,
		"max(attempt, 3.5)":                            3.5,
		"attempt | min(2)":                             2,
		"status == 429 ? 60 : min(2 ** attempt, 3600)": 60,
		"status in [429, 503] ? 60 : 5":                60,
		"status not in [500] ? 60 : 5":                 60,
		"error in ['busy', 'slow down'] ? 60 : 5":      60,
		"400 <= status < 500 ? 60 : 5":                 60,
		"status == 429.0 ? 60 : 0.5":                   60,
		"min(attempt, 2.5) == 2.5 ? 1 : 2":             1, // no mixture of kinds is a surprise
		"min(attempt, 4) == 3 ? 1 : 2":                 1,
		"if attempt > 3 { 60 } else { rand }":          0.5,
		"error + '!' == 'slow down!' ? 1 : 2":          1,
		"round(10.5 * rand) + abs(-1)":                 6,
		"1e300 * 1e10":                                 math.Inf(1),
		"attempt * 9223372036854775807 > 0 ? 1 : 2":    1, // no wrapping around
	} {
		t.Run(text, func(t *testing.T) {
			r := newReader()
			require.NoError(t, r.Check(text), text)
			got, err := r.Seconds(text, busy)
			require.NoError(t, err, text)
			require.Equal(t, want, got, text)
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const only = "only arithmetic, comparisons, conditions, lists after in, and the functions " +
		"abs, ceil, floor, max, min, round are known"
	for text, want := range map[string]string{
		"often":                               "unknown name often (1:1)",
		"attempt\n+ attemps":                  "unknown name attemps (2:3)",
		"Attempt":                             "unknown name Attempt (1:1)",
		"$env":                                "unknown name $env (1:1)",
		"":                                    "unexpected token EOF (1:1)",
		"attempt +":                           "unexpected token EOF (1:9)",
		"30s":                                 `bad number syntax: "30s" (1:3)`,
		"'abc":                                "literal not terminated (1:5)",
		"error":                               "its value must be a number, not string",
		"attempt > 3":                         "its value must be a number, not bool",
		"attempt > 3 ? 1 : 'a'":               "the two cases are of different types (1:15)",
		"2 + (attempt > 3 ? 1 : 'a')":         "the two cases are of different types (1:20)",
		"(attempt > 3 ? 'a' : 1) < 2 ? 5 : 6": "the two cases are of different types (1:16)",
		"(true ? true : 1) ? 5 : 6":           "the two cases are of different types (1:9)",
		"attempt > 3 ? (attempt > 4 ? 'a' : 1) : 2": "the two cases are of different types (1:30)",
		"attempt ? 1 : 2": "non-bool expression (type float64) used as condition (1:1)",
		"error * 2": "invalid operation: * (mismatched types string and float64) " +
			"(1:7)",
		"error % 2": "cannot use string as argument (type float64) to call % (1:1)",
		"attempt == '3' ? 1 : 2": "invalid operation: == (mismatched types float64 and string) " +
			"(1:9)",
		"min(error, 3)":           "invalid argument for min (type string) (1:1)",
		"abs(1, 2)":               "invalid number of arguments (expected 1, got 2) (1:1)",
		"max()":                   "not enough arguments to call max (1:1)",
		"1..3":                    "unknown operator .. (1:2)",
		"error matches '' ? 1: 2": "unknown operator matches (1:7)",
		"attempt ?? 3":            "unknown operator ?? (1:9)",
		"now()":                   "unknown function now (1:1)",
		"error(1)":                "unknown function error (1:1)",
		"mod(5, 3)":               "unknown function mod (1:1)",
		"len(error)":              "unknown function len (1:1)",
		"error.x":                 only + " (1:7)",
		"$env.attempt":            only + " (1:6)",
		"error[0:1]":              only + " (1:6)",
		"[1]":                     only + " (1:1)",
		"min([1, 2])":             only + " (1:5)",
		"{}":                      only + " (1:1)",
		"nil":                     only + " (1:1)",
		"b'abc'":                  only + " (1:1)",
		"1; 2":                    only + " (1:1)",
		"let a = 1; a":            only + " (1:5)",
		"error.x()":               only + " (1:7)",
	} {
		t.Run(text, func(t *testing.T) {
			err := newReader().Check(text)
			require.EqualError(t, err, want, text)
			require.NotContains(t, err.Error(), "\n")
			_, err = newReader().Seconds(text, busy)
			require.Error(t, err, text)
		})
	}
}

// hostile are texts that would hang a node or use up its memory if they were allowed.
var hostile = map[string]string{
	"a long range":       "1..1000000000",
	"a range to look in": "attempt in 1..1000000000 ? 1 : 2",
	"ranges in ranges":   "sum(map(1..10000, sum(map(1..10000, sum(1..10000)))))",
	"a long text":        "len(repeat('x', 1000000000))",
	"text that doubles":  "let a = error + error;" + repeated("let %c = %c + %c;", 20) + "1",
	"a large regexp":     "error matches '((((a{1000}){1000}){1000}){1000})' ? 1 : 2",
	// 23 s
	"a slow regexp":         "error matches '" + strings.Repeat(".{0,1000}", 49) + "z' ? 1 : 2",
	"a regexp from outside": "error matches error ? 1 : 2",
	"a chain in chains":     chain(480),
	"a large text":          strings.Repeat("(", 1<<20),
	"too many nodes":        "1" + strings.Repeat("+1", 249),
}

func repeated(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, 'b'+i, 'a'+i, 'a'+i)
	}
	return b.String()
}

// chain nests a < b < c in the middle of another: the parser puts the middle into the tree
// twice, so 40 levels give 2⁴⁰ nodes.
func chain(length int) string {
	text := "1"
	for len(text) < length {
		text = "1<(" + text + ")<1?1:1"
	}
	return text
}

// ungainly are texts that are allowed, and must be harmless.
var ungainly = map[string]string{
	"deep parentheses": strings.Repeat("(", 249) + "1" + strings.Repeat(")", 249),
	"many signs":       strings.Repeat("-", 240) + "1",
	"many noes":        strings.Repeat("!", 240) + "true ? 1 : 2",
	"towers":           "9" + strings.Repeat("**9", 120),
	"products":         "9e307" + strings.Repeat("*9e307", 80),
	"texts added up":   "error" + strings.Repeat("+error", 78) + " contains 'x' ? 1 : 2",
	"texts compared": "error contains error" + strings.Repeat(" and error contains error", 18) +
		" ? 1 : 2",
	"a long list":       "status in [1" + strings.Repeat(",1", 238) + "] ? 1 : 2",
	"nested conditions": strings.Repeat("true?", 70) + "1" + strings.Repeat(":1", 70),
	"nested calls":      strings.Repeat("abs(", 80) + "1" + strings.Repeat(")", 80),
	"many arguments":    "min(1" + strings.Repeat(",1", 240) + ")",
	"a short chain":     chain(40),
}

func TestHostile(t *testing.T) {
	t.Parallel()
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			requireCheap(t, name, func() { require.Error(t, newReader().Check(text)) })
		})
	}
}

func TestUngainly(t *testing.T) {
	t.Parallel()
	failure := asyncflow.Failure{Attempt: 99, Status: 599, Error: strings.Repeat("é", 2048),
		Rand: 0.999}
	for name, text := range ungainly {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(text), asyncflow.MaxExpression)
			requireCheap(t, name, func() {
				r := newReader()
				require.NoError(t, r.Check(text))
				_, err := r.Seconds(text, failure)
				require.NoError(t, err)
			})
		})
	}
}

// requireCheap fails when do takes longer than 30 s, which is plenty on a busy machine. What
// isn't cheap takes hours, or all memory.
func requireCheap(t *testing.T, name string, do func()) {
	t.Helper()
	start := time.Now()
	do()
	require.Less(t, time.Since(start), 30*time.Second, name)
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	r := newReader()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := range maxPrograms {
				want := float64(worker*maxPrograms + n)
				got, err := r.Seconds(fmt.Sprint(want), busy)
				if err != nil || got != want {
					t.Errorf("%v: %v, %v", want, got, err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, r.programs, maxPrograms)
	require.Error(t, r.Check("often"))
	require.Len(t, r.programs, maxPrograms, "what is wrong is not kept")
	p, err := r.program("7 + attempt")
	require.NoError(t, err)
	again, err := r.program("7 + attempt")
	require.NoError(t, err)
	require.Same(t, p, again, "compiled once")
}

// A cache full of the largest programs uses little memory.
func TestCacheSize(t *testing.T) {
	r := newReader()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 100 {
		require.NoError(t, r.Check(fmt.Sprintf("%d%s", 100+n, strings.Repeat("+rand", 99))))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(100*50_000),
		"at most 50 kB each")
	require.Len(t, r.programs, 100)
}

// FuzzExpression: any text is refused in one line, or gives a pause within the bounds, quickly
// and without a panic.
func FuzzExpression(f *testing.F) {
	for _, texts := range []map[string]string{hostile, ungainly} {
		for _, text := range texts {
			f.Add(text, 1, 0, "", 0.0)
		}
	}
	f.Add("status == 429 ? 60 : min(2 ** attempt, 3600)", 5, 429, "429 Too Many Requests", 0.5)
	f.Add("error contains 'x' or status in [500, 503] ? rand * 60 : 7 % attempt", 2, 503, "x", 0.25)
	f.Add("often", 1, 0, "", 0.0)
	f.Fuzz(func(t *testing.T, text string, attempt, status int, problem string, random float64) {
		failure := asyncflow.Failure{Attempt: 1 + int(uint(attempt)%100), Status: status,
			Error: problem,
			Rand:  random}
		requireCheap(t, text, func() {
			r := newReader()
			if err := r.Check(text); err != nil {
				require.NotEmpty(t, err.Error())
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.LessOrEqual(t, len(text), asyncflow.MaxExpression)
			_, err := r.Seconds(text, failure)
			require.NoError(t, err, "what passes the check can't fail")
			pause := asyncflow.Rule(text).Pause(failure)
			require.GreaterOrEqual(t, pause, time.Duration(0))
			require.LessOrEqual(t, pause, asyncflow.MaxInterval*time.Second)
		})
	})
}

// BenchmarkPause compares the kinds of intervals.
func BenchmarkPause(b *testing.B) {
	for name, interval := range map[string]asyncflow.Interval{
		"number":     asyncflow.Seconds(3600),
		"list":       asyncflow.Seconds(1, 10, 60),
		"poly":       asyncflow.Rule(asyncflow.Poly),
		"expression": asyncflow.Rule("status == 429 ? 60 : min(2 ** attempt, 3600)"),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				interval.Pause(busy)
			}
		})
	}
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if _, err := compile("status == 429 ? 60 : min(2 ** attempt, 3600)"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
