package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

func TestInsist(t *testing.T) {
	t.Parallel()
	calls := 0
	opened := pgtest.Insist(t, func() (string, error) {
		if calls++; calls < 3 {
			return "", &asyncflow.Error{Code: asyncflow.CodeUnavailable}
		}
		return "opened", nil
	})
	require.Equal(t, []any{"opened", 3}, []any{opened, calls})
}
