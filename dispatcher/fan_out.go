package dispatcher

import (
	"fmt"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// fanOut settles a leased task whose stage is done by children: it waits for them from then on. An
// empty list joins at once.
func (d *Dispatcher) fanOut(t *store.Type, l asyncflow.Lease, rule asyncflow.FanOut) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut}
	work, err := rule.Spread(l.Context)
	most := int64(asyncflow.DefaultMaxChildren)
	if tenant, ok := d.store.Catalog.Tenant(t.Tenant); ok {
		most = tenant.Quotas.Children
	}
	if err == nil && most > 0 && int64(work.Count) > most {
		err = fmt.Errorf("fan_out: the task would have %d children; the tenant's quota %s is %d",
			work.Count, asyncflow.QuotaChildren, most)
	}
	switch {
	case err != nil:
		o.Kind, o.Error = asyncflow.OutcomeRejected, err.Error()
	case work.Count == 0:
		o.Kind, o.Output = asyncflow.OutcomeJoined, store.NoResults
	default:
		o.FannedOut = &asyncflow.FannedOut{FanOut: rule, Count: work.Count}
	}
	d.settle(t, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, d.store.Clock.Now())})
}
