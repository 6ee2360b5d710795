// Package longform is the form in which tests run. In the short form, the default, a test takes
// little, but enough to fail by the same faults. In the long form it takes more tries, more data
// or all combinations, to find what is rare. ASYNCFLOW_TEST_LONG=1 asks for the long form, and
// make test-long runs all tests in it. Some tests cost seconds of processor time even in the short
// form: go test ./... leaves them out, and ASYNCFLOW_TEST_ALL=1 or -run takes them in, as CI does.
package longform

import (
	"flag"
	"os"
	"testing"
)

// Asked reports whether tests run in their long form.
func Asked() bool { return os.Getenv("ASYNCFLOW_TEST_LONG") == "1" }

// Size returns how much of something a test takes.
func Size(short, long int) int {
	if Asked() {
		return long
	}
	return short
}

// Only skips a test in the short form. Other tests must fail by the same faults.
func Only(t *testing.T) {
	t.Helper()
	if !Asked() {
		t.Skip("it is part of the long form: ASYNCFLOW_TEST_LONG=1")
	}
}

// Costly skips a test that costs seconds of processor time, unless all tests are asked for, the
// long form, or tests by name (-run). It is for tests of many kills, races or random sequences, and
// of whole programs: other tests say the same of one step.
func Costly(t *testing.T) {
	t.Helper()
	named := flag.Lookup("test.run").Value.String() != ""
	if !named && !Asked() && os.Getenv("ASYNCFLOW_TEST_ALL") != "1" {
		t.Skip("it costs seconds of processor time: ASYNCFLOW_TEST_ALL=1, as in CI, or -run")
	}
}
