package pgtest

import (
	"testing"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Insist returns what open opens. It calls open again while the server is too slow for it: a store
// gives a server 5 s to take a connection, and a busy machine may take longer.
func Insist[T any](t testing.TB, open func() (T, error)) T {
	t.Helper()
	for end := time.Now().Add(adminTimeout); ; <-time.After(20 * time.Millisecond) {
		opened, err := open()
		if err == nil {
			return opened
		}
		if asyncflow.CodeOf(err) != asyncflow.CodeUnavailable || time.Now().After(end) {
			t.Fatalf("pgtest: %v", err)
		}
	}
}
