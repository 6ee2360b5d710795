package asyncflow_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// stages returns a type with these stages and this mapping.
func stages(mapping map[string]string, names ...string) asyncflow.TaskType {
	t := asyncflow.TaskType{Name: "x", StageMapping: mapping}
	for _, name := range names {
		t.Stages = append(t.Stages, asyncflow.Stage{Name: name})
	}
	return t.WithDefaults()
}

type mapping = map[string]string

func TestStageMapping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, next asyncflow.TaskType
		want      mapping
		unmapped  []string
	}{
		"nothing is removed": {stages(nil, "a", "b"), stages(nil, "b", "a", "c"),
			mapping{}, nil},
		"removed": {stages(nil, "a", "b"), stages(nil, "b"), mapping{},
			[]string{"a"}},
		"removed and mapped": {stages(nil, "a", "b"), stages(mapping{"a": "b"}, "b"),
			mapping{"a": "b"}, nil},
		"an older mapping is kept": {stages(mapping{"a": "b"}, "b"), stages(nil, "b", "c"),
			mapping{"a": "b"}, nil},
		"a newer one takes its place": {stages(mapping{"a": "b"}, "b", "c"),
			stages(mapping{"a": "c"}, "b", "c"), mapping{"a": "c"}, nil},
		"its stage came back": {stages(mapping{"a": "b"}, "b"), stages(nil, "a", "b"),
			mapping{}, nil},
		"its target is removed": {stages(mapping{"a": "b"}, "b"), stages(nil, "c"),
			mapping{}, []string{"a", "b"}},
		"its target is removed and mapped": {stages(mapping{"a": "b"}, "b"),
			stages(mapping{"b": "c"}, "c"), mapping{"a": "c", "b": "c"}, nil},
		"a mapping of what never was: no harm": {stages(nil, "a"), stages(mapping{"z": "a"}, "a"),
			mapping{"z": "a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			after := c.next.After(c.old)
			require.Equal(t, c.want, after.StageMapping, name)
			unmapped := after.UnmappedStages(c.old)
			slices.Sort(unmapped)
			require.Equal(t, c.unmapped, unmapped, name)
		})
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	pipe := stages(mapping{"a": "b"}, "b", "c")
	for _, c := range []struct {
		stage   string
		attempt int
		want    string
		first   int
	}{{"c", 4, "c", 4}, {"a", 4, "b", 1}, {"gone", 4, "gone", 4}} {
		t.Run(c.stage, func(t *testing.T) {
			stage, attempt := pipe.Mapped(c.stage, c.attempt)
			require.Equal(t, c.want, stage)
			require.Equal(t, c.first, attempt)
		})
	}
}

func TestCheckMapping(t *testing.T) {
	t.Parallel()
	for detail, m := range map[string]mapping{
		"": {"old": "a"},
		"stage_mapping.a is for a stage that is not removed": {"a": "b"},
		`stage_mapping.old is "gone", which is not a stage`:  {"old": "gone"},
		"stage_mapping.Old is not the name of a stage: must start with a " +
			"lower-case letter": {"Old": "a"},
	} {
		t.Run(detail, func(t *testing.T) {
			requireRefusal(t, stages(m, "a", "b").Validate(), asyncflow.CodeInvalid, detail)
		})
	}
}

// An attempt of a stage that was removed meanwhile leads to that stage's mapping, whatever its
// outcome, unless the task is over.
func TestDecideMapped(t *testing.T) {
	t.Parallel()
	pipe := pipeline()
	pipe.StageMapping = mapping{"gone": "resize"}
	onward := asyncflow.Verdict{Kind: asyncflow.Advance, Stage: "resize", Attempt: 1,
		OrderTime: now.Add(-10e9)}
	for kind, want := range map[asyncflow.OutcomeKind]asyncflow.Verdict{
		asyncflow.OutcomeDone:      onward,
		asyncflow.OutcomeFailed:    onward,
		asyncflow.OutcomeLost:      onward,
		asyncflow.OutcomeSnoozed:   onward,
		asyncflow.OutcomeRejected:  {Kind: asyncflow.Fail},
		asyncflow.OutcomeCancelled: {Kind: asyncflow.Cancel},
	} {
		t.Run(string(kind), func(t *testing.T) {
			l := asyncflow.Lease{Stage: "gone", Attempt: 20}
			require.Equal(t, want, asyncflow.Decide(pipe, l, asyncflow.Outcome{Kind: kind}, now))
		})
	}
}
