package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// photo is an input, and picture an output.
type photo struct {
	Name, Note string
}

type picture struct{ Width int }

// A handler reads the input and earlier outputs, also if they were too long for its delivery.
func TestThePastOfATask(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"past-inline": 0, "past-by-url": 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claimType(t, name)
			_, err := c.PutTaskType(t.Context(), name, client.TaskTypeSpec{MaxDeliverBytes: most,
				Stages: []client.Stage{{Name: "inspect", Mode: asyncflow.ModeClaim},
					{Name: "render", Mode: asyncflow.ModeClaim, Deliver: &asyncflow.Deliver{
						Input: true, Outputs: []string{"inspect", "render"}}}}})
			require.NoError(t, err)
			w := claimWorker(t)
			worker.Handle(w, name, "inspect",
				func(_ context.Context, task worker.Task[photo]) (picture, error) {
					assert.Nil(t, task.Input)
					_, err := worker.Input[photo](task)
					assert.ErrorContains(t, err, "the stage inspect doesn't ask for it")
					return picture{Width: 640}, nil
				})
			worker.Handle(w, name, "render",
				func(_ context.Context, task worker.Task[picture]) (photo, error) {
					assert.Equal(t, most == 0, task.Input != nil)
					inspected, err := worker.Output[picture](task, "inspect")
					assert.NoError(t, err)
					assert.Equal(t, picture{Width: 640}, inspected)
					rendered, err := worker.Output[*picture](task, "render")
					assert.NoError(t, err)
					assert.Nil(t, rendered)
					_, err = worker.Output[picture](task, "other")
					assert.ErrorContains(t, err,
						"the output of other: the stage render doesn't ask")
					_, err = worker.Input[int](task)
					assert.ErrorContains(t, err, "the input: json: cannot unmarshal object")
					return worker.Input[photo](task)
				})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			for _, stage := range []string{"inspect", "render"} {
				go func() { ended <- w.Claim(ctx, worker.Claims{Client: c}, name, stage) }()
			}
			input := `{"Name":"harbour","Note":"` + strings.Repeat("x", 50) + `"}`
			task, err := c.Submit(t.Context(), client.NewTask{Type: name,
				Context: client.JSON(input)})
			require.NoError(t, err)
			done, err := c.Wait(t.Context(), task.ID, 2*time.Minute)
			require.NoError(t, err)
			assert.Equal(t, input, string(done.Result), done.Error)
			stop()
			for range 2 {
				require.NoError(t, <-ended)
			}
		})
	}
}
