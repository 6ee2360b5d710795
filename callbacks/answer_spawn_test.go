package callbacks

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// An answer may start tasks. What can't be read fails the attempt, so that nothing is passed over.
func TestAnswerSpawn(t *testing.T) {
	t.Parallel()
	one := asyncflow.SpawnedTask{Type: "report", Context: json.RawMessage(`{"b":  1}`), Key: "k"}
	for body, c := range map[string]struct {
		want  []asyncflow.SpawnedTask
		error string
	}{
		`{"spawn":[{"type":"report","context":{"b":  1},"key":"k"}]}`: {
			[]asyncflow.SpawnedTask{one}, ""},
		`{"spawn":[]}`:   {nil, ""},
		`{"spawn":null}`: {nil, ""},
		`{"spawn":{}}`:   {nil, "the answer's spawn is not an array"},
		`{"spawn":[{"type":"report","context":1,"keys":"k"}]}`: {nil,
			`the answer's spawn[0] is not the JSON object {type, context, priority?, run_at?, delay?, ` +
				`retry?, key?, key_window?, flow_key?, claim?, start_by?, end_by?}: ` +
				`unknown field "keys"`},
		`{"spawn":[{"type":"report","context":1},{"type":"report"}]}`: {nil,
			"the answer's spawn[1].context is required"},
		`{"spawn":[{"type":"report","context":1,"end_by":"soon"}]}`: {nil,
			"the answer's spawn[0] is not the JSON object"},
		`{"spawn":[{"type":"report","context":1,"end_by":"87601h"}]}`: {nil,
			"the answer's spawn[0].end_by is 87601h0m0s"},
		`{"spawn":[{"type":"report","context":1,"delay":"x"}]}`: {nil, "the answer's spawn[0]"},
		`{"spawn":[{"type":"report","context":1}],"join":7}`:    {nil, "the answer's join must be true"},
		`{"spawn":[{"type":"report","context":1}],"join":{"x":1}}`: {nil,
			"the answer's join must be true, false or {on_child_failure?, max_parallel?, results?}"},
		`{"spawn":[{"type":"report","context":1}],"join":{"max_parallel":-1}}`: {nil,
			"the answer's join.max_parallel is -1"},
		`{"output":1,"spawn":[{"type":"report","context":1}],"join":true}`: {nil,
			"the answer's output and join exclude each other"},
		`{"outcome":"fail","join":true}`: {nil,
			`the answer has spawn or join, but the outcome "fail"`},
		`{"spawn":[7]}`: {nil, "the answer's spawn[0] is not the JSON object"},
		`{"outcome":"fail","spawn":[{"type":"report","context":1}]}`: {nil,
			`the answer has spawn or join, but the outcome "fail"`},
		`{"outcome":"snooze","retry_after":"1m","spawn":[{"type":"report","context":1}]}`: {nil,
			`the answer has spawn or join, but the outcome "snooze"`},
		`{"spawn":[` + strings.Repeat(`{"type":"a","context":1},`, asyncflow.MaxSpawn) +
			`{"type":"a","context":1}]}`: {nil, "the answer's spawn has 10001 entries"},
	} {
		t.Run(body[:min(len(body), 100)], func(t *testing.T) {
			t.Parallel()
			o := readAnswer(asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200},
				"application/json", []byte(body), 1024)
			if c.error != "" {
				require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
				require.Contains(t, o.Error, c.error)
				require.Empty(t, o.Spawn)
				return
			}
			require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
			require.Equal(t, c.want, o.Spawn)
		})
	}
}

// The results of one answer start a bounded number of tasks together: the shortest ones take ten
// times as many bytes in memory as in the answer. A result over the bound fails its attempt; later
// ones that are short enough count.
func TestResultsStartABoundedNumberOfTasks(t *testing.T) {
	t.Parallel()
	sizes := []int{10_000, 10_000, 10_000, 10_000, 9_999, 10_000, 2, 1, 0, 1}
	var results []string
	for i, n := range sizes {
		some := strings.TrimSuffix(strings.Repeat(`{"type":"a","context":0},`, n), ",")
		results = append(results, fmt.Sprintf(`{"task_id":"thumbnails.1.%d","spawn":[%s]}`, i+1, some))
	}
	r := setup(t)
	r.Sender.cfg.MaxOutput = maxAnswers
	w := newWorker(t, reply(200, `{"results":[`+strings.Join(results, ",")+`]}`))
	var started, failed []int
	for i, o := range sendAll(t, r, w, len(sizes)) {
		if o.Kind == asyncflow.OutcomeDone {
			require.Len(t, o.Spawn, sizes[i])
			started = append(started, i)
			continue
		}
		require.Contains(t, o.Error, "the results of an answer may start 50000 tasks together")
		require.Less(t, len(o.Error), 5000)
		require.Empty(t, o.Spawn)
		failed = append(failed, i)
	}
	require.Equal(t, [][]int{{0, 1, 2, 3, 4, 7, 8}, {5, 6, 9}}, [][]int{started, failed})
}

// An answer may say that its task waits for the tasks that it starts. Without any, the results are
// empty.
func TestAnswerJoins(t *testing.T) {
	for body, want := range map[string]*asyncflow.Join{
		`true`:  {},
		`{}`:    {},
		`false`: nil,
		`null`:  nil,
		`{"on_child_failure":{"tolerate":{"count":2}},"max_parallel":3,"results":"settled"}`: {
			OnChildFailure: asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Count: 2},
			MaxParallel:    3, Results: asyncflow.ResultsSettled},
	} {
		read := func(spawn string) asyncflow.Outcome {
			return readAnswer(asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200},
				"application/json", []byte(`{"spawn":`+spawn+`,"join":`+body+`}`), 1024)
		}
		o := read(`[{"type":"report","context":1}]`)
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
		require.Equal(t, want, o.Join, body)
		none := read(`[]`)
		require.Nil(t, none.Join)
		if want != nil {
			require.Equal(t, asyncflow.NoResults, none.Output)
		}
	}
}
