package asyncflow_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestCheckSpawn(t *testing.T) {
	t.Parallel()
	spec := pipeline()
	spec.Stages[0].Spawn = []string{"thumbnails", "report"}
	deep := &asyncflow.Spawned{Parent: "a.1.1", Depth: asyncflow.MaxDepth}
	for name, c := range map[string]struct {
		stage   string
		o       asyncflow.Options
		types   []string
		refused string
	}{
		"none":    {"resize", asyncflow.Options{}, nil, ""},
		"allowed": {"inspect", asyncflow.Options{}, []string{"thumbnails", "report"}, ""},
		"a child": {"inspect", asyncflow.Options{Child: &asyncflow.Child{}}, []string{"report"},
			""},
		"deep": {"inspect", asyncflow.Options{Spawned: &asyncflow.Spawned{Depth: 7}}, []string{"report"},
			""},
		"none when deeper": {"inspect", asyncflow.Options{Spawned: deep}, nil, ""},
		"a typo": {"inspect", asyncflow.Options{}, []string{"report", "thumbnail"},
			`spawn[1].type "thumbnail" is not allowed in stage "inspect": it must be "thumbnails" or "report"`},
		"a stage without": {"resize", asyncflow.Options{}, []string{"report"},
			`spawn[0].type "report" is not allowed in stage "resize": the stage has no spawn`},
		"a vote": {"inspect", asyncflow.Options{Child: &asyncflow.Child{Vote: true}},
			[]string{"report"},
			"a vote starts no tasks"},
		"too deep": {"inspect", asyncflow.Options{Spawned: deep}, []string{"report"},
			"8 tasks in a row have started one another"},
		"a stage that is gone": {"gone", asyncflow.Options{}, []string{"report"},
			`the stage "gone" is gone`},
	} {
		t.Run(name, func(t *testing.T) {
			o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: []byte(`1`)}
			for _, one := range c.types {
				o.Spawn = append(o.Spawn, asyncflow.SpawnedTask{Type: one, Context: []byte(`1`)})
			}
			err := spec.CheckSpawn(asyncflow.Lease{Stage: c.stage, Options: c.o}, o)
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
			require.Equal(t, asyncflow.CodeSpawn, asyncflow.CodeOf(err))
			refused := o.Refused(err)
			require.Equal(t, asyncflow.OutcomeFailed, refused.Kind)
			require.Contains(t, refused.Error, "invalid_spawn: "+c.refused)
			require.Empty(t, refused.Spawn)
			require.Empty(t, refused.Output)
		})
	}
}

// What a stage may start is checked with its type.
func TestSpawnOfAType(t *testing.T) {
	t.Parallel()
	spec := pipeline()
	spec.Stages[1].Spawn = []string{"thumbnails", "thumbnails", "no name"}
	err := spec.Validate()
	require.ErrorContains(t, err, `stages[1].spawn[1] is "thumbnails", which an earlier entry is`)
	require.ErrorContains(t, err, "stages[1].spawn[2]")
	spec.Stages[1].Spawn = make([]string, asyncflow.MaxSpawnTypes+1)
	require.ErrorContains(t, spec.Validate(), "stages[1].spawn has 51 entries; the limit is 50")
	spec.Stages[1].Spawn = []string{"thumbnails"}
	require.NoError(t, spec.Validate())
	spec.Stages[1].Quorum = &asyncflow.Quorum{Votes: 2, MaxVotes: 3}
	require.ErrorContains(t, spec.Validate(), "stages[1].spawn can't be given with quorum")
}

func TestCheckSpawned(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := asyncflow.SpawnedTask{Type: "report", Context: json.RawMessage(`1`)}
	for name, c := range map[string]struct {
		change  func(*asyncflow.SpawnedTask)
		refused string
	}{
		"no context": {func(s *asyncflow.SpawnedTask) { s.Context = nil },
			"spawn[1].context is required"},
		"no type": {func(s *asyncflow.SpawnedTask) { s.Type = "" }, "spawn[1].type"},
		"a long context": {func(s *asyncflow.SpawnedTask) { s.Context = []byte(`"` + strings.Repeat("x", 99) + `"`) },
			"spawn[1].context is 101 bytes; the limit is 100"},
		"a window alone": {func(s *asyncflow.SpawnedTask) { s.KeyWindow = asyncflow.NewDuration(time.Second) },
			"spawn[1].key_window needs a key"},
		"two times": {func(s *asyncflow.SpawnedTask) { s.RunAt, s.Delay = now, asyncflow.NewDuration(time.Second) },
			"spawn[1].delay and run_at exclude each other"},
		"a NUL": {func(s *asyncflow.SpawnedTask) { s.FlowKey = "a\x00" },
			"spawn[1].flow_key must be UTF-8 without NUL"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.change(&bad)
			err := asyncflow.CheckSpawned([]asyncflow.SpawnedTask{good, bad}, now, 100)
			require.ErrorContains(t, err, c.refused)
		})
	}
	require.NoError(t, asyncflow.CheckSpawned([]asyncflow.SpawnedTask{good, good}, now, 100))
	err := asyncflow.CheckSpawned(make([]asyncflow.SpawnedTask, asyncflow.MaxSpawn+1), now, 100)
	require.ErrorContains(t, err, "spawn has 10001 entries; the limit is 10000")
}

// The stored form of tasks keeps their contexts byte for byte, and all else.
func TestSpawnText(t *testing.T) {
	t.Parallel()
	retry := asyncflow.RetryPolicy{MaxAttempts: 3}
	tasks := []asyncflow.SpawnedTask{
		{Type: "a", Context: json.RawMessage(`{"b":  "<&>", "context":0}`)},
		{Type: "b", Context: json.RawMessage(`0`), Key: `"context":0`, Retry: &retry,
			Priority: asyncflow.Priority{3}, Delay: asyncflow.NewDuration(time.Minute),
			KeyWindow: asyncflow.NewDuration(time.Hour), FlowKey: "f"},
		{Type: "c", Context: json.RawMessage(`null`), RunAt: time.Unix(1, 0).UTC()},
	}
	for n := range len(tasks) + 1 {
		var read []asyncflow.SpawnedTask
		text := asyncflow.SpawnText(tasks[:n])
		require.NoError(t, json.Unmarshal([]byte(text), &read))
		require.Len(t, read, n)
		for i := range read {
			require.Equal(t, tasks[i], read[i])
		}
	}
	var days asyncflow.SpawnedTask
	require.NoError(t, json.Unmarshal([]byte(`{"type":"a","context":0,"delay":"2d",
		"key_window":"1w"}`), &days))
	require.Equal(t, `[{"type":"a","context":0,"delay":"48h","key_window":"168h"}]`,
		asyncflow.SpawnText([]asyncflow.SpawnedTask{days}), "older nodes can read it")
}
