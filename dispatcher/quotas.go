package dispatcher

import "time"

// tenantRoom returns how many more tasks the quotas of a tenant let this node lease, and,
// should there be no room for whatever reason, when to look again. Each node has its share
// of a quota, rounded up; one that the others don't know of yet, none.
func (d *Dispatcher) tenantRoom(tenant string, now time.Time) (room int, again time.Time) {
	room, again = d.cfg.Concurrency, now.Add(fullLook)
	t, ok := d.store.Catalog.Tenant(tenant)
	if !ok {
		return room, again
	}
	if most := t.Quotas.Concurrency; most > 0 {
		nodes := int64(d.store.Dispatchers())
		share := int((most + nodes - 1) / nodes)
		if d.store.Joining() {
			share = 0
		}
		room = min(room, share-d.held.ofTenant(tenant))
	}
	if most := t.Quotas.DeliveriesPerSecond; most > 0 {
		tokens, at := d.rates.look(rateKey{tenant, "tenant", ""}, most, now)
		if room = min(room, tokens); tokens == 0 {
			again = at
			if soon := now.Add(contendedPause); at.Before(soon) {
				again = soon
			}
		}
	}
	return max(0, room), again
}

// charge takes what is leased from the tenant's quota of deliveries; less than nothing is
// given back.
func (d *Dispatcher) charge(tenant string, n int) {
	if t, ok := d.store.Catalog.Tenant(tenant); ok && t.Quotas.DeliveriesPerSecond > 0 {
		d.rates.take(rateKey{tenant, "tenant", ""}, t.Quotas.DeliveriesPerSecond, d.store.Clock.Now(), n)
	}
}
