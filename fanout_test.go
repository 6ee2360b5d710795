package asyncflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	work, err := asyncflow.FanOut{Items: "/i", Shared: "/s"}.Spread(json.RawMessage(
		`{"i": [ 1.0, {"x":  "é"}], "s": {"k": [ ]}}`))
	require.NoError(t, err)
	assert.Equal(t, []json.RawMessage{[]byte("1.0"), []byte(`{"x":  "é"}`)}, work.Items(0, 9))
	assert.Equal(t, `{"k": [ ]}`, string(work.Shared))
	for doc, want := range map[string]string{
		`{"i": "x", "s": 1}`: "fan_out.items: /i is a string; it must be an array",
		`{"i": [], "t": 1}`:  `fan_out.shared: /s: the context has no "s" there`,
		`{"i": [], "s": "` + strings.Repeat("x", asyncflow.MaxShared) +
			`"}`: "fan_out.shared: /s has " +
			"65538 bytes; the limit is 65536",
	} {
		t.Run(doc, func(t *testing.T) {
			_, err := asyncflow.FanOut{Items: "/i", Shared: "/s"}.Spread(json.RawMessage(doc))
			assert.EqualError(t, err, want)
		})
	}
	_, err = asyncflow.FanOut{Shards: 1000}.Spread(
		json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`))
	assert.EqualError(t, err, "each of the 1000 children would get a copy of 100002 bytes, "+
		"together 100002000; the limit is 67108864")
}

func TestChildFailures(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]asyncflow.ChildFailure{
		`"fail_fast"`:                   {Policy: asyncflow.FailFast},
		`"all_settled"`:                 {Policy: asyncflow.AllSettled},
		`{"tolerate":{"count":0}}`:      {Policy: asyncflow.Tolerate},
		`{"tolerate":{"count":3}}`:      {Policy: asyncflow.Tolerate, Count: 3},
		`{"tolerate":{"percent":12.5}}`: {Policy: asyncflow.Tolerate, Percent: 12.5},
	} {
		t.Run(doc, func(t *testing.T) {
			var got asyncflow.ChildFailure
			require.NoError(t, json.Unmarshal([]byte(doc), &got))
			assert.Equal(t, want, got)
			back, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, doc, string(back))
		})
	}
	for _, doc := range []string{`{"tolerate":{}}`, `{"tolerate":{"count":1,"percent":2}}`, `7`,
		`{"forgive":1}`} {
		t.Run(doc, func(t *testing.T) {
			assert.Error(t, json.Unmarshal([]byte(doc), new(asyncflow.ChildFailure)))
		})
	}
	assert.True(t, asyncflow.ChildFailure{}.TooMany(1, 100))
	percent := asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Percent: 5}
	assert.False(t, percent.TooMany(5, 100))
	assert.True(t, percent.TooMany(6, 100))
	count := asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Count: 5}
	assert.False(t, count.TooMany(5, 6))
	assert.True(t, count.TooMany(6, 100_000))
	assert.False(t, asyncflow.ChildFailure{Policy: asyncflow.AllSettled}.TooMany(9, 9))
}

func TestTheContextItselfCanBeTheItems(t *testing.T) {
	t.Parallel()
	var rule asyncflow.FanOut
	require.NoError(t, json.Unmarshal([]byte(`{"items":""}`), &rule))
	assert.Equal(t, asyncflow.FanOut{Items: asyncflow.WholeContext}, rule)
	back, err := json.Marshal(rule)
	require.NoError(t, err)
	assert.JSONEq(t, `{"items":""}`, string(back))
	tt := asyncflow.TaskType{Name: "t", Stages: []asyncflow.Stage{{Name: "a", FanOut: &rule}}}
	require.NoError(t, tt.WithDefaults().Validate())
	work, err := rule.Spread(json.RawMessage(`[1.0, "b"]`))
	require.NoError(t, err)
	assert.Equal(t, []json.RawMessage{json.RawMessage(`1.0`), json.RawMessage(`"b"`)},
		work.Items(0, 9))
	_, err = rule.Spread(json.RawMessage(`{"a": 1}`))
	assert.EqualError(t, err, "fan_out.items: the context is an object; it must be an array")
	none := asyncflow.FanOut{}
	require.NoError(t, json.Unmarshal([]byte(`{"shards":2}`), &none))
	assert.Empty(t, none.Items)
}

func TestFanOutFields(t *testing.T) {
	t.Parallel()
	for want, rule := range map[string]asyncflow.FanOut{
		"stages[0].fan_out.items is required, or shards": {},
		"stages[0].fan_out.items and shards exclude each other": {Items: "/a",
			Shards: 1},
		"stages[0].fan_out.shards is 10001; it must be 1 to 10000":                     {Shards: 10001},
		`stages[0].fan_out.items is "a"; a JSON pointer begins with /, such as /pages`: {Items: "a"},
		"stages[0].fan_out.shared is 1025 bytes long; the limit is 1024": {Shards: 1,
			Shared: "/" + strings.Repeat("x", 1024)},
		"stages[0].fan_out.max_parallel is -1; it must be 0 (no limit) to 100000": {Shards: 1,
			MaxParallel: -1},
		"stages[0].fan_out.on_child_failure.tolerate must have a count of 0 or more, or a " +
			"percent of 0 to 100": {Shards: 1,
			OnChildFailure: asyncflow.ChildFailure{Policy: asyncflow.Tolerate,
				Percent: 101}},
		`stages[0].fan_out.results is "all"; it must be outputs or settled`: {Shards: 1,
			Results: "all"},
	} {
		t.Run(want, func(t *testing.T) {
			tt := asyncflow.TaskType{Name: "t",
				Stages: []asyncflow.Stage{{Name: "a", FanOut: &rule}}}
			assert.EqualError(t, tt.WithDefaults().Validate(), want)
		})
	}
}

// BenchmarkSpread measures what each chunk of children costs, and each child if max_parallel is 1.
func BenchmarkSpread(b *testing.B) {
	list := `[` + strings.Repeat("1,", 99_999) + `1]`
	deep := asyncflow.FanOut{Items: asyncflow.Pointer(strings.Repeat("/a", 120))}
	for name, one := range map[string]struct {
		rule asyncflow.FanOut
		doc  string
	}{
		"100,000 items": {asyncflow.FanOut{Items: "/a"}, `{"a":` + list + `}`},
		"100,000 items, 120 steps": {deep,
			strings.Repeat(`{"a":`, 120) + list + strings.Repeat("}", 120)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := one.rule.Spread(json.RawMessage(one.doc)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestCountNew(t *testing.T) {
	t.Parallel()
	shards := func(n int) asyncflow.Stage {
		return asyncflow.Stage{FanOut: &asyncflow.FanOut{Shards: n}}
	}
	items := asyncflow.Stage{FanOut: &asyncflow.FanOut{Items: "/results"}}
	const three, stored = `{"results":[1,2,3]}`,
		`{"count":1000000000000000000,"results_url":"x/v1/tasks/j.1.1/results?fan_out=1"}`
	for _, test := range []struct {
		name, context string
		want          int
		stages        []asyncflow.Stage
	}{
		{"nothing", three, 1, []asyncflow.Stage{{}}},
		{"items", three, 4, []asyncflow.Stage{items}},
		{"items of a later stage", three, 1, []asyncflow.Stage{{}, items}},
		{"shards of all stages", three, 10, []asyncflow.Stage{shards(4), shards(5)}},
		{"shards whose shared part comes later", three, 6, []asyncflow.Stage{{},
			{FanOut: &asyncflow.FanOut{Shards: 5, Shared: "/later"}}}},
		{"more than allowed", three, 5, []asyncflow.Stage{shards(101), shards(4)}},
		{"votes", three, 4, []asyncflow.Stage{{Quorum: &asyncflow.Quorum{Votes: 3, MaxVotes: 9}}}},
		{"results that can't be there yet", stored, 1, []asyncflow.Stage{items}},
		{"visited again", three, 6, []asyncflow.Stage{shards(5),
			{Name: "b", FanOut: shards(4).FanOut}, {Next: []string{"b", asyncflow.NextFinish}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			kind := asyncflow.TaskType{Stages: test.stages}
			assert.Equal(t, test.want, kind.CountNew(json.RawMessage(test.context), 100))
		})
	}
}
