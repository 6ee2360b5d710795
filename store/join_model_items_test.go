package store_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

// The first stage of the type fan makes items, the others only tasks that an attempt starts.
var joinTypes = []string{"base", "pipe", "fan"}

// spreading returns the type fan, which is like another one otherwise.
func spreading(spec asyncflow.TaskType) asyncflow.TaskType {
	spec.Name = "fan"
	spec.Stages = []asyncflow.Stage{spec.Stages[0], spec.Stages[1]}
	spec.Stages[0].FanOut = &asyncflow.FanOut{Items: "/items"}
	spec.Stages[0].Next = nil
	spec.Stages[0].OnFailure = nil
	return spec
}

// context is what a task is made with; of the type fan, with items.
func (m *joinMachine) context(t *rapid.T, name, label string) string {
	if name != "fan" {
		return fmt.Sprintf(`"%s"`, label)
	}
	items := make([]string, rapid.SampledFrom([]int{2, 3, 1, 0}).Draw(t, "items"))
	for i := range items {
		items[i] = fmt.Sprintf(`"%s/%d"`, label, i)
	}
	return fmt.Sprintf(`{"of":"%s","items":[%s]}`, label, strings.Join(items, ","))
}

// isItem reports whether a task is the child of a fan-out: it ends with its stage.
func (w *joinTask) isItem() bool { return w.part != nil && w.part.items }

// inLastStage reports whether a task ends when its stage is done.
func (w *joinTask) inLastStage() bool {
	return w.id.Type == "base" || w.stage == 1 || w.isItem()
}

// spreads reports whether a node makes items of a task in its stage, and sends it to nobody.
func (w *joinTask) spreads() bool { return w.id.Type == "fan" && w.stage == 0 && !w.isItem() }

// spread is what a node reports of such a task.
func (m *joinMachine) spread(t *rapid.T, w *joinTask) asyncflow.Outcome {
	o := m.fanOut(t, w.lease())
	if o.FannedOut != nil {
		o.FannedOut.Results = rapid.SampledFrom([]asyncflow.ResultsForm{"",
			asyncflow.ResultsSettled}).Draw(t, "results")
	}
	return o
}

// itemsOf returns the group of the items of a task.
func (w *joinTask) itemsOf(o asyncflow.FannedOut) joinGroup {
	g := joinGroup{items: true, join: asyncflow.Join{OnChildFailure: o.OnChildFailure,
		MaxParallel: o.MaxParallel, Results: o.Results}}
	work, _ := o.Spread(json.RawMessage(w.contexts[0]))
	all := work.Items(0, o.Count)
	for i := range o.Count {
		context := w.contexts[0]
		if o.Shards == 0 {
			context = string(all[i])
		}
		g.list = append(g.list, spawned(w.id.Type, context))
	}
	return g
}

// checkpoint returns what the next attempt gets.
func (w *joinTask) checkpoint() string {
	if w.left.stage != w.stage {
		return ""
	}
	return w.left.document
}

// heartbeat leaves a checkpoint of any attempt ever begun: only one that holds its task writes it.
func (m *joinMachine) heartbeat(t *rapid.T) {
	w := m.pick(t, func(w *joinTask) bool { return w.status == asyncflow.StatusRunning })
	l := w.lease()
	if rapid.IntRange(0, 3).Draw(t, "any") == 0 {
		l = rapid.SampledFrom(w.leases).Draw(t, "lease")
	}
	m.beat(t, w, l)
}

func (m *joinMachine) beat(t *rapid.T, w *joinTask, l asyncflow.Lease) {
	m.beats++
	document := fmt.Sprintf(`{"beat":%d}`, m.beats)
	b, end := m.node(t)
	stands := b.keep(l, document)
	end()
	require.Equal(t, w.status == asyncflow.StatusRunning && l.Seq == w.seq, stands, "%s seq %d",
		l.ID, l.Seq)
	if stands {
		w.left = leftover{document, w.stage}
	}
}

// loseWithCheckpoint makes an attempt leave a checkpoint and be lost with its node. The task begins
// again where it may.
func (m *joinMachine) loseWithCheckpoint(t *rapid.T) {
	w := m.pick(t, func(w *joinTask) bool { return w.status == asyncflow.StatusRunning })
	m.beat(t, w, w.lease())
	m.lose(t, w)
	m.lease()
}
