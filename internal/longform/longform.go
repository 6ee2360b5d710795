// Package longform is the form in which tests run. In the short form, the default, a test takes
// little, but enough to fail by the same faults. In the long form it takes more tries, more data
// or all combinations, to find what is rare. ASYNCFLOW_TEST_LONG=1 asks for the long form, and
// make test-long runs all tests in it.
package longform

import (
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
