package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A look that fails is made up for by the next one, and still within 5 s.
func TestRevocationsAreSeenInTime(t *testing.T) {
	t.Parallel()
	require.Less(t, 2*revocationsEvery, 5*time.Second)
}
