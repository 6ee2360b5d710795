package pgtest

import (
	"os"
	"runtime/debug"
	"testing"
)

// The heaps of tests are small, so Go's default of 100 % collects them often. Processes of
// asyncflow that tests start are test binaries, too. GOGC=100 is for benchmarks.
func init() {
	if testing.Testing() && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
