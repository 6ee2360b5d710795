package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestFairnessText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]asyncflow.Fairness{
		`true`: asyncflow.FairKeyFirst, `"key_first"`: asyncflow.FairKeyFirst,
		`"priority_first"`: asyncflow.FairPriorityFirst, `false`: asyncflow.FairNot,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var f asyncflow.Flow
			require.NoError(t, json.Unmarshal([]byte(`{"fair":`+text+`}`), &f))
			assert.Equal(t, want, f.Fair)
			doc, err := json.Marshal(f)
			require.NoError(t, err)
			var again asyncflow.Flow
			require.NoError(t, json.Unmarshal(doc, &again))
			assert.Equal(t, f, again)
		})
	}
	for _, text := range []string{`"first"`, `null`, `1`, `""`} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var f asyncflow.Fairness
			assert.ErrorContains(t, f.UnmarshalJSON([]byte(text)), "key_first")
		})
	}
}

func TestWeightsAreChecked(t *testing.T) {
	t.Parallel()
	many := map[string]int{}
	for i := range asyncflow.MaxFlowWeights + 1 {
		many[fmt.Sprint(i)] = 1
	}
	fair := asyncflow.FairKeyFirst
	for name, c := range map[string]struct {
		flow  asyncflow.Flow
		field string
	}{
		"good":    {asyncflow.Flow{Fair: fair, Weights: map[string]int{"a": 1, "b": 1000}}, ""},
		"small":   {asyncflow.Flow{Fair: fair, Weights: map[string]int{"a": 0}}, "flow.weights.a"},
		"large":   {asyncflow.Flow{Fair: fair, Weights: map[string]int{"a": 1001}}, "flow.weights.a"},
		"no key":  {asyncflow.Flow{Fair: fair, Weights: map[string]int{"": 1}}, "flow.weights."},
		"many":    {asyncflow.Flow{Fair: fair, Weights: many}, "flow.weights"},
		"unfair":  {asyncflow.Flow{Ordered: true, Weights: map[string]int{"a": 1}}, "flow.weights"},
		"nothing": {asyncflow.Flow{}, "flow"},
		"long key": {asyncflow.Flow{Fair: fair,
			Weights: map[string]int{strings.Repeat("a", 256): 1}}, "flow.weights.aaa"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := asyncflow.TaskType{Name: "pipe", Flow: &c.flow,
				Stages: []asyncflow.Stage{{Name: "call"}}}.WithDefaults()
			err := pipe.Validate()
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.field)
		})
	}
	assert.Contains(t, asyncflow.TaskType{Flow: &asyncflow.Flow{Fair: fair}}.Uses(),
		asyncflow.CapFairFlow)
}
