package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Scenarios that are compared take their turns side by side, each as often first as second, or once
// more.
func TestByTurns(t *testing.T) {
	t.Parallel()
	var begun []started
	for _, s := range []scenario{
		{name: "a", times: 3}, {name: "b", times: 3}, {name: "c", times: 1}, {name: "d", times: 1},
	} {
		begun = append(begun, started{scenario: s})
	}
	named := func(turns []started) (all string) {
		for _, s := range turns {
			all += s.name
		}
		return all
	}
	assert.Equal(t, "abbaabcd", named(byTurns(begun, false)))
	assert.Equal(t, "abcd", named(byTurns(begun, true)))
	assert.Equal(t, "aaac", named(byTurns([]started{begun[0], begun[2]}, false)), "one alone")
	assert.Equal(t, "abcd", named(begun), "they are left as they are")
}
