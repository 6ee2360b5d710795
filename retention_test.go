package asyncflow_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A retention is read as a duration or an object, and written as it was read.
func TestRetention(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"30d"`:                          `"30d"`,
		`{"tasks":"30d"}`:                `"30d"`,
		`{"tasks":"30d","context":"7d"}`: `{"tasks":"30d","context":"7d"}`,
		` {"context":"90m"}`:             `{"context":"90m"}`,
		`{"tasks":"1h","context":"0s"}`:  `"1h"`,
	} {
		t.Run(text, func(t *testing.T) {
			var r asyncflow.Retention
			require.NoError(t, json.Unmarshal([]byte(text), &r))
			got, err := json.Marshal(r)
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		})
	}
	for _, text := range []string{`5`, `"x"`, `[]`, `{"contexts":"7d"}`, `{"context":7}`,
		`{"context":"7x"}`} {
		t.Run(text, func(t *testing.T) {
			assert.Error(t, json.Unmarshal([]byte(text), new(asyncflow.Retention)))
		})
	}
}

// Contents are kept for a minute or more, and no longer than the tasks.
func TestContextRetention(t *testing.T) {
	t.Parallel()
	check := func(context string) error {
		kind := pipeline()
		require.NoError(t, kind.ContextRetention.UnmarshalText([]byte(context)))
		return kind.Validate()
	}
	require.NoError(t, check("1m"))
	require.NoError(t, check("1h"))
	require.ErrorContains(t, check("59s"), "retention.context is 59s; it must be 1m to")
	require.ErrorContains(t, check("61m"),
		"retention.context is 61m; tasks are kept for 1h, and contents for no longer")
	kind := pipeline()
	kind.ContextRetention = asyncflow.NewDuration(asyncflow.MinRetention)
	assert.Equal(t, []asyncflow.Capability{asyncflow.CapErasure, asyncflow.CapContextRetention},
		kind.Uses())
}
