package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// Of the tasks at the end of a stage, the first in order go on at once: as many as there is
// capacity for, and only if their next context is at hand.
func TestTasksThatGoOnAtOnce(t *testing.T) {
	t.Parallel()
	for capacity, want := range map[int][]string{
		3:  {"", "", `3`, "", ""}, // in the second stage it is first
		4:  {`{"made":1}`, "", `3`, "", ""},
		20: {`{"made":1}`, `2`, `3`, "", ""},
	} {
		t.Run(fmt.Sprint("capacity ", capacity), func(t *testing.T) {
			testTasksThatGoOnAtOnce(t, capacity, want)
		})
	}
}

func testTasksThatGoOnAtOnce(t *testing.T, capacity int, want []string) {
	w := setupWriter(t)
	w.put(writerType())
	for i, stage := range []string{"first", "second"} {
		_, err := w.CreateEndpoint(t.Context(), tenant,
			asyncflow.Endpoint{Type: "pipe", Stage: stage,
				ID: "0190a6f0-0000-7000-8000-00000000000" + []string{"1", "2"}[i], URL: "https://w",
				Weight: 1})
		require.NoError(t, err)
	}
	pipe, err := w.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	sender := func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		t.Error("there is nothing to send")
		return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
	}
	d := dispatcher.New(w.Committer, sendFunc(sender), dispatcher.Config{Concurrency: capacity})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()

	now := w.Clock.Now()
	outcome := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}
	outcomes := []asyncflow.Outcome{outcome, outcome, outcome, outcome,
		{Kind: asyncflow.OutcomeRejected}}
	outcomes[0].Output = json.RawMessage(`{"made":1}`)
	settlements := make([]asyncflow.Settlement, len(outcomes))
	for i, o := range outcomes {
		l := asyncflow.Lease{ID: asyncflow.NewTaskID("pipe", 1, int64(i+1)), Seq: 1,
			Context: json.RawMessage{byte('1' + i)}}
		if i == 2 {
			l.Options.Priority = asyncflow.Priority{0, 60}
		}
		l.Stage, l.Attempt = "first", 1
		settlements[i] = asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o,
				now.Add(time.Duration(i)*time.Microsecond))}
	}
	settlements[3].Lease.Context = nil // it is still to be read
	var nexts []*asyncflow.Lease
	eventually(t, "the node knows that no other task stands in line", func() bool {
		nexts = d.Nexts(pipe, settlements)
		return nexts != nil
	})
	require.Len(t, nexts, 5)
	for i, want := range want {
		if want == "" {
			assert.Nil(t, nexts[i], "task %d", i)
			continue
		}
		l := nexts[i]
		require.NotNil(t, l, "task %d", i)
		assert.Equal(t, []any{settlements[i].Lease.ID, "second", 1, 2, want,
			settlements[i].Lease.Options},
			[]any{l.ID, l.Stage, l.Attempt, l.Seq, string(l.Context), l.Options})
	}
}
