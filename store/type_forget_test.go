package store_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Types that are created, used and deleted leave nothing behind on a node.
func TestTypesThatAreGoneAreForgotten(t *testing.T) { eachSet(t, typesThatAreGoneAreForgotten) }

func typesThatAreGoneAreForgotten(t *testing.T, b *bundle) {
	for n := range 10 {
		name := fmt.Sprint("passing", n)
		passing := b.put(asyncflow.TaskType{Name: name,
			Stages: []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
		b.submit(asyncflow.NewTask{Type: name, Context: json.RawMessage(`1`)})
		b.settle(passing, b.lease(passing, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		require.Positive(t, b.KeptTypes())
		require.NoError(t, b.DeleteTaskType(t.Context(), tenant, name, false))
	}
	pipe := twoStages()
	kept := 1 // the numbers of the set that types share
	if b.own {
		kept = 0
	}
	eventually(t, "with the next change all of them are forgotten", func() bool {
		pipe.ScheduleLimit = pipe.ScheduleLimit%100 + 1
		b.put(pipe)
		return b.KeptTypes() == kept
	})
}
