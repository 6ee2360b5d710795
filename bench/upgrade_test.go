package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is measured are the indexes that migrations make on tables with rows of tasks.
func TestNewIndexes(t *testing.T) {
	t.Parallel()
	found, err := newIndexes(30)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(found), 3)
	last := newIndex{"00044_content_waits_rolls", "content_waits",
		"CREATE INDEX ON content_waits (type, (id >> 40), since);"}
	assert.Contains(t, found, last)
	none, err := newIndexes(100_000)
	require.NoError(t, err)
	assert.Empty(t, none)
}
