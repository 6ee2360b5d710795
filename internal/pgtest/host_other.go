//go:build !linux

package pgtest

import "testing"

// Host is a machine in front of a database.
type Host struct{ *Network }

// NewHost skips the test: there are network namespaces on Linux only.
func NewHost(t testing.TB, _ string) (*Host, string) {
	t.Helper()
	t.Skip("NOT TESTED: a lost host. Only Linux has network namespaces")
	return nil, ""
}

// Lose does nothing.
func (h *Host) Lose() {}
