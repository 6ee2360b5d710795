package sleep_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/sleep"
)

func TestFor(t *testing.T) {
	t.Parallel()
	require.True(t, sleep.For(t.Context(), time.Millisecond))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, sleep.For(ended, time.Hour)) // otherwise the test runs into its limit
}
