package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChosen(t *testing.T) {
	t.Parallel()
	all, err := chosen(nil)
	require.NoError(t, err)
	assert.Len(t, all, len(scenarios))
	some, err := chosen(names{"river", "post"})
	require.NoError(t, err)
	require.Len(t, some, 2)
	assert.Equal(t, "post", some[0].name, "in the order of a round")
	for _, wrong := range []names{{"nothing"}, {"post", "post"}, {""}} {
		t.Run(strings.Join(wrong, " "), func(t *testing.T) {
			_, err := chosen(wrong)
			assert.ErrorContains(t, err, "choose from post,")
		})
	}
}
