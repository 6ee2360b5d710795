package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestPriorityRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.IntRange(0, asyncflow.MaxPriority), 1, asyncflow.MaxStages)
		requireRoundTrip(t, asyncflow.Priority(entries.Draw(t, "priority")))
	})
}

func TestPriorityJSON(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]asyncflow.Priority{
		`0`:         {0},
		`60`:        {60},
		`[60]`:      {60},
		`[60, 0,5]`: {60, 0, 5},
	} {
		t.Run(doc, func(t *testing.T) {
			got, err := decode[asyncflow.Priority](doc)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	doc, err := json.Marshal(asyncflow.Priority{60})
	require.NoError(t, err)
	require.Equal(t, `60`, string(doc), "one for all is a number")

	for _, doc := range []string{`[]`, `[null]`, `[null,1]`, `null`, `"60"`, `1.5`, `[1.5]`, `true`,
		`{}`, `[[1]]`, `["1"]`, `1e30`} {
		t.Run(doc, func(t *testing.T) {
			_, err := decode[asyncflow.Priority](doc)
			require.EqualError(t, err,
				"must be a whole number of seconds or a list of them, not "+doc)
		})
	}
}

func TestPriorityForStage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		priority asyncflow.Priority
		stage    int
		want     time.Duration
		ok       bool
	}{
		{nil, 0, 0, false},
		{asyncflow.Priority{}, 3, 0, false},
		{asyncflow.Priority{0}, 0, 0, true},
		{asyncflow.Priority{9}, 0, 9 * time.Second, true},
		{asyncflow.Priority{9}, 4, 9 * time.Second, true},
		{asyncflow.Priority{9, 5}, 0, 9 * time.Second, true},
		{asyncflow.Priority{9, 5}, 1, 5 * time.Second, true},
		{asyncflow.Priority{9, 5}, 2, 5 * time.Second, true},
		{asyncflow.Priority{asyncflow.MaxPriority}, 0, year, true},
	} {
		t.Run(fmt.Sprintf("%v at stage %d", c.priority, c.stage), func(t *testing.T) {
			got, ok := c.priority.ForStage(c.stage)
			require.Equal(t, c.ok, ok, "%v at %d", c.priority, c.stage)
			require.Equal(t, c.want, got, "%v at %d", c.priority, c.stage)
		})
	}
}
