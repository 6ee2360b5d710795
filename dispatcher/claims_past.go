package dispatcher

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// readPasts reads what the stage of some claims asks for, up to claimBytes. New claims beyond that
// go back in line. A claimer gets its earlier claims beyond that when it asks again.
func (h *claims) readPasts(ctx context.Context, t *store.Type, asks []*store.ClaimAsk) error {
	var all []asyncflow.Lease
	for _, a := range asks {
		all = append(all, a.Leases...)
	}
	if len(all) == 0 {
		return nil
	}
	n, err := h.c.store.ReadPast(ctx, t, all, claimBytes)
	why := "there was no memory for what the stage is given"
	if err != nil {
		why = "what the stage is given can't be read"
	}
	var back []asyncflow.Lease
	for _, a := range asks {
		count := len(a.Leases)
		kept := min(n, count)
		if a.New {
			back = append(back, all[kept:count]...)
		}
		a.Leases = all[:kept:kept]
		all = all[count:]
		n -= kept
	}
	if len(back) > 0 {
		h.c.ReleaseClaims(t.Tenant, back, why)
	}
	return err
}
