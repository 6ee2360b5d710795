package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Only a URL in asyncflow's own form leads to stored results: anyone may write a context.
func TestStoredResults(t *testing.T) {
	t.Parallel()
	spread := func(count, url string) (asyncflow.Spread, error) {
		return asyncflow.FanOut{Items: "/results"}.Spread(json.RawMessage(
			fmt.Sprintf(`{"count":%s,"results_url":"%s"}`, count, url)))
	}
	const good = "https://x/v1/tasks/pipe.1.7/results?fan_out="
	work, err := spread("100000", good+"32767")
	require.NoError(t, err)
	assert.Equal(t, 100_000, work.Count)
	assert.Equal(t, asyncflow.StoredResults{Task: asyncflow.TaskID{Type: "pipe",
		Number: asyncflow.NewTaskID("pipe", 1, 7).Number}, FanOut: 32767}, work.Stored)
	for name, bad := range map[string][2]string{
		"fan-out past its type": {"3", good + "32768"},
		"huge fan-out":          {"3", good + "9999999999"},
		"no fan-out":            {"3", good + "0"},
		"negative fan-out":      {"3", good + "-2"},
		"zero before":           {"3", good + "02"},
		"sign":                  {"3", good + "+2"},
		"too many":              {"100001", good + "2"},
		"none":                  {"0", good + "2"},
		"a half":                {"1.5", good + "2"},
		"no number":             {"3", "/v1/tasks/pipe.1.0/results?fan_out=2"},
		"huge number":           {"3", "/v1/tasks/pipe.1.9999999999999999999/results?fan_out=2"},
		"huge position":         {"3", "/v1/tasks/pipe.9999999999.7/results?fan_out=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := spread(bad[0], bad[1])
			assert.EqualError(t, err,
				`fan_out.items: /results: the context has no "results" there`)
		})
	}
}
