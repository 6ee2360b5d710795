package dispatcher

import (
	"context"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// pastReads is how many reads of what stages ask for run at once, and tenantPastReads how many
	// of them for one tenant: its tables may be locked until the reads time out.
	pastReads       = 12
	tenantPastReads = 4
	// pastBytes bounds the documents that one of them brings.
	pastBytes = 4 << 20
)

// asksForPast reports whether the delivery of a leased task carries more than its context.
func asksForPast(t *store.Type, l asyncflow.Lease) bool {
	return t.Delivers(l.Stage) != nil && t.FansOut(l) == nil
}

// beginWithPast is begin for tasks that may be in stages which ask for what came before. It reads
// that first, within the byte budget, for a part of the tasks at a time.
func (d *Dispatcher) beginWithPast(t *store.Type, leases []asyncflow.Lease) {
	var asking, others []asyncflow.Lease
	for _, l := range leases {
		if asksForPast(t, l) {
			asking = append(asking, l)
		} else {
			others = append(others, l)
		}
	}
	if len(others) > 0 {
		d.begin(t, others)
	}
	for len(asking) > 0 {
		n, why := d.readPast(t, asking)
		if why != "" {
			d.ledger.Begun(t.Key(), len(asking))
			d.giveBack(t, asking, why)
			return
		}
		d.begin(t, slices.Clone(asking[:n])) // the array would keep all of their contents in memory
		clear(asking[:n])
		asking = asking[n:]
	}
}

// readPast reads what the stages of the first leases ask for, as far as the byte budget allows, in
// which these documents then count. It returns the number of these leases, at least one, or why it
// read nothing.
func (d *Dispatcher) readPast(t *store.Type, leases []asyncflow.Lease) (n int, why string) {
	defer d.pasts.Acquire(t.Tenant)()
	own := contextBytes(leases)
	lent := d.ledger.Lend(t.Key(), own, min(pastBytes, len(leases)*t.MaxDeliverBytes))
	if lent == 0 {
		return 0, "the node has no memory for what the stage is given"
	}
	defer d.ledger.Release(t.Key(), 0, lent)
	ctx, cancel := context.WithTimeout(d.sending, leaseTime)
	defer cancel()
	n, err := d.store.ReadPast(ctx, t, leases, lent)
	if err != nil {
		return 0, "what the stage is given can't be read: " + err.Error()
	}
	before := 0
	for i := range n {
		before += leases[i].Size() - leases[i].PastSize()
	}
	d.ledger.Answered(t.Key(), n, before, contextBytes(leases[:n]))
	return n, ""
}
