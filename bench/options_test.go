package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	var s sizes
	require.NoError(t, s.Set("0,1000000"))
	assert.Equal(t, sizes{0, 1000000}, s)
	for _, text := range []string{"", "1,", "-1", "a"} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			assert.Error(t, s.Set(text))
		})
	}
}
