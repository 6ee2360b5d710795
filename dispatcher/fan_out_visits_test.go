package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// All visits of a loop together make no more children than a task may make. A redrive counts anew,
// as for steps.
func TestChildrenOfAllVisitsAreBounded(t *testing.T) {
	b := setup(t)
	f := b.loopingFamily()
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = slices.Clone(spec.Stages)
	spec.Stages[1].Next = []string{"first", asyncflow.NextFinish}
	_, _, err = f.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	for _, more := range []int{0, 1} {
		before := asyncflow.MaxChildren - 4 + more
		id := f.submitOne(`{"n":[1,2]}`)
		<-f.second // the second stage, after the first visit
		b.quietly(fmt.Sprintf(`UPDATE tenant_acme.fan_outs SET count = %d, closed = true
			WHERE id = %d`, before+2, id.Number))
		f.answers <- asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Next: "first",
			Output: []byte(`{"n":[1,2]}`)}
		if more == 0 {
			<-f.second
			f.answers <- asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Finish: true}
		}
		task := f.ended(id)
		if more == 0 {
			assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
			continue
		}
		assert.Equal(t, "too_many_children: earlier visits made 99999 children, and this one "+
			"would make 2; the most of all visits is 100000", task.Error)
	}
}

// loopingFamily is a family; the test answers for its second stage.
type loopingFamily struct {
	*family
	second  chan struct{}
	answers chan asyncflow.Outcome
}

func (b *bundle) loopingFamily() *loopingFamily {
	l := &loopingFamily{second: make(chan struct{}), answers: make(chan asyncflow.Outcome)}
	l.family = &family{t: b.t, b: b}
	l.node = b.start("a", dispatcher.Config{}, func(
		_ context.Context, d asyncflow.Delivery,
	) asyncflow.Outcome {
		if d.Lease.Stage == "first" {
			return done
		}
		l.second <- struct{}{}
		return <-l.answers
	})
	l.fansOut(asyncflow.FanOut{Items: "/n"})
	return l
}
