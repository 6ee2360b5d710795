package dispatcher

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// awaitSignal settles a leased task of a stage of mode wait: from then on, it waits for its signal.
func (d *Dispatcher) awaitSignal(t *store.Type, l asyncflow.Lease, wait asyncflow.Wait) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeAwaits, Awaits: &wait}
	d.settle(t, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, d.store.Clock.Now())})
}
