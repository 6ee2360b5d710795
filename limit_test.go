package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		asyncflow.Rate
		perSecond float64
	}{
		"1/s":       {asyncflow.Rate{Count: 1, Per: time.Second}, 1},
		"5000/m":    {asyncflow.Rate{Count: 5000, Per: time.Minute}, 5000.0 / 60},
		"10/h":      {asyncflow.Rate{Count: 10, Per: time.Hour}, 10.0 / 3600},
		"1000000/s": {asyncflow.Rate{Count: 1_000_000, Per: time.Second}, 1e6},
	} {
		t.Run(text, func(t *testing.T) {
			var r asyncflow.Rate
			require.NoError(t, r.UnmarshalText([]byte(text)), text)
			assert.Equal(t, want.Rate, r)
			assert.InDelta(t, want.perSecond, r.PerSecond(), 1e-9)
			assert.Equal(t, text, r.String())
		})
	}
	for _, text := range []string{"", "1", "1/", "/s", "1/d", "1.5/s", "+1/s", "01/s", " 1/s",
		"1/s ",
		"1/S", "99999999999999999999/s"} {
		t.Run(text, func(t *testing.T) {
			var r asyncflow.Rate
			assert.ErrorContains(t, r.UnmarshalText([]byte(text)), `"100/s"`)
		})
	}
}

func TestLimitsOfATaskType(t *testing.T) {
	t.Parallel()
	per := func(n int) asyncflow.Rate { return asyncflow.Rate{Count: n, Per: time.Second} }
	for field, spec := range map[string]asyncflow.TaskType{
		"max_in_flight": {Limits: asyncflow.Limits{MaxInFlight: asyncflow.MaxMaxInFlight + 1}},
		"rate":          {Limits: asyncflow.Limits{Rate: per(asyncflow.MaxRateCount + 1)}},
		"flow":          {Flow: &asyncflow.Flow{}},
		"flow.max_in_flight": {Flow: &asyncflow.Flow{Ordered: true,
			Limits: asyncflow.Limits{MaxInFlight: 2}}},
		"flow.rate":       {Flow: &asyncflow.Flow{Limits: asyncflow.Limits{Rate: per(-1)}}},
		"flow.on_failure": {Flow: &asyncflow.Flow{Ordered: true, OnFailure: "stop"}},
	} {
		t.Run(field, func(t *testing.T) {
			spec.Name, spec.Stages = "pipe", []asyncflow.Stage{{Name: "only"}}
			requireFields(t, spec.WithDefaults().Validate(), field)
		})
	}
	for name, stage := range map[string]asyncflow.Stage{
		"quorum": {Quorum: &asyncflow.Quorum{Votes: 2, MaxVotes: 3}},
		"claim":  {Mode: asyncflow.ModeClaim},
	} {
		t.Run(name, func(t *testing.T) {
			stage.Name = name
			spec := asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{stage},
				Flow: &asyncflow.Flow{Ordered: true}}
			requireFields(t, spec.WithDefaults().Validate(), "flow")
		})
	}
	spec := asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{{Name: "only"}},
		Limits: asyncflow.Limits{MaxInFlight: 5, Rate: per(7)},
		Flow:   &asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowBlock}}.WithDefaults()
	require.NoError(t, spec.Validate())
	doc, err := json.Marshal(spec)
	require.NoError(t, err)
	assert.Contains(t, string(doc),
		`"max_in_flight":5,"rate":"7/s","flow":{"ordered":true,"on_failure":"block"}`)
	var back asyncflow.TaskType
	require.NoError(t, json.Unmarshal(doc, &back))
	back.Name = spec.Name
	assert.Equal(t, spec, back)
	onlyFailure := spec
	onlyFailure.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 3},
		OnFailure: asyncflow.FlowSkip}
	requireFields(t, onlyFailure.Validate(), "flow.on_failure")
}

func TestFlowKeys(t *testing.T) {
	t.Parallel()
	spec := asyncflow.TaskType{Stages: []asyncflow.Stage{{Name: "first"}, {Name: "second"}}}
	keyed := asyncflow.Options{FlowKey: "k"}
	assert.Empty(t, spec.LineKeyOf(keyed), "the type knows nothing of flow keys")
	spec.Flow = &asyncflow.Flow{Ordered: true}
	assert.Equal(t, "k", spec.LineKeyOf(keyed))
	assert.Equal(t, 1, spec.Flow.InFlight())
	assert.False(t, spec.Started("first", 1))
	assert.True(t, spec.Started("first", 2))
	assert.True(t, spec.Started("second", 1))
	for _, key := range []string{"\x00", "\xff", strings.Repeat("k", asyncflow.MaxFlowKey+1)} {
		t.Run(fmt.Sprintf("%.10q", key), func(t *testing.T) {
			err := asyncflow.NewTask{Type: "pipe", Context: []byte(`1`),
				Options: asyncflow.Options{FlowKey: key}}.Validate(now, 100)
			requireFields(t, err, "flow_key")
		})
	}
}

// requireFields checks that err names exactly these fields, in order.
func requireFields(t *testing.T, err error, fields ...string) {
	t.Helper()
	var e *asyncflow.Error
	require.ErrorAs(t, err, &e)
	var named []string
	for _, f := range e.Fields {
		named = append(named, f.Field)
	}
	require.Equal(t, fields, named)
}
