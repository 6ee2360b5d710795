package dispatcher

import "github.com/asyncflow/asyncflow/store"

// reservation is capacity for n tasks that haven't come yet, with a delivery for each in the rate
// of their tenant. The caller ends it once: by use when the tasks have come, or by cancel. A
// further call does nothing.
type reservation struct {
	d    *Dispatcher
	key  store.TypeKey
	n    int
	kept bool // the tasks are in flight already: they have ended a stage
}

// reservation returns the reservation of n tasks for which charged deliveries were charged. It
// refunds the deliveries that exceed n.
func (d *Dispatcher) reservation(key store.TypeKey, charged, n int, kept bool) reservation {
	d.refund(key.Tenant, charged-n)
	return reservation{d: d, key: key, n: n, kept: kept}
}

// use hands the capacity over to n tasks with documents of some bytes, at most r.n, and gives the
// rest back. From then on each task has its own: until it is settled, or see forgo.
func (r *reservation) use(n, bytes int) {
	if r.n == 0 {
		return
	}
	unused := r.n - n
	r.n = 0
	r.d.refund(r.key.Tenant, unused)
	if r.kept {
		r.d.ledger.Begun(r.key, unused)
		return
	}
	r.d.ledger.Unused(r.key, unused)
	r.d.ledger.Arrived(r.key, n, bytes)
}

// cancel gives all of the capacity back.
func (r *reservation) cancel() { r.use(0, 0) }

// forgo gives back the capacity of n tasks that were to begin and don't, and their deliveries.
func (d *Dispatcher) forgo(t *store.Type, n, bytes int) {
	d.refund(t.Tenant, n)
	d.ledger.Begun(t.Key(), n)
	d.ledger.Release(t.Key(), n, bytes)
}

// forgoNext gives back what a task that has ended a stage kept for its next one, but not the
// capacity of the ended stage.
func (d *Dispatcher) forgoNext(t *store.Type) {
	d.refund(t.Tenant, 1)
	d.ledger.Begun(t.Key(), 1)
}
