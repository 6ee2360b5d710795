package dispatcher

import (
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// A tenant with a locked table waits apart from all other tenants: each try to write something of
// it may take as long as a connection waits for a lock. So its writes of all types and kinds are
// kept, and one batch of them is tried now and then, until the lock is gone. What fails for another
// reason is put aside by type and kind.

const (
	// lockProbes is how many of these tries are made at a time at most: each takes a hot
	// connection.
	lockProbes = 2
	// The pause between two tries doubles from firstTry to lockPause.
	lockPause = 100 * time.Millisecond
)

// hold keeps the writes of a tenant with a locked table, and its later writes, until they can be
// written. If it isn't known which tenant that is, each one is tried apart.
func (a *failedWrites) hold(parts []*part, locked store.Refused) (rest []*part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range parts {
		tenant := p.key.Tenant
		if locked.To > 0 && tenant != parts[locked.From].key.Tenant {
			rest = append(rest, p)
			continue
		}
		waiting := a.locked[tenant]
		if waiting == nil {
			waiting = &waitingWrites{}
			a.locked[tenant] = waiting
			a.c.writes.AddPending(1) // drain waits for this, too
			go a.writeHeld(tenant, waiting)
		}
		for _, w := range p.writes() {
			waiting.add(w)
		}
	}
	return rest
}

// writeHeld writes what waits of a tenant until nothing is left.
func (a *failedWrites) writeHeld(tenant string, waiting *waitingWrites) {
	defer a.c.writes.AddPending(-1)
	pause := firstTry
	for batch := a.nextHeld(tenant, waiting); batch != nil; batch = a.nextHeld(tenant, waiting) {
		var still []*part
		a.probe(func() { still = a.tryHeld(byKind(divide(a.divertTypes(batch)))) })
		if len(still) == 0 {
			pause = firstTry
			continue
		}
		a.putBack(waiting, still)
		if pause == firstTry {
			a.c.log.Info("a table is locked; the tenant's writes wait", "tenant", tenant)
		}
		sleep.For(a.c.writing, pause)
		pause = min(2*pause, lockPause)
	}
}

// probe runs a try to write what waits for a lock, when it is its turn.
func (a *failedWrites) probe(try func()) {
	a.probes <- struct{}{}
	defer func() { <-a.probes }()
	try()
}

// byKind divides parts by kind of writes: not all of them may need the locked table.
func byKind(parts []*part) (kinds []*part) {
	for _, p := range parts {
		for _, k := range []*part{{extends: p.extends, earlier: p.earlier},
			{settles: p.settles, repeated: p.repeated}, {inserts: p.inserts}} {
			if k.key = p.key; len(k.extends)+len(k.settles)+len(k.inserts) > 0 {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

// tryHeld writes parts of a tenant, and returns the parts that still wait for a lock. After the
// second such part, it tries no more.
func (a *failedWrites) tryHeld(parts []*part) (still []*part) {
	var held func([]*part, store.Refused) (rest []*part)
	held = func(parts []*part, _ store.Refused) (rest []*part) {
		if len(still) > 0 || len(parts) == 1 {
			still = append(still, parts...)
			return nil
		}
		for i := range parts { // it isn't known which: they are tried one by one
			if len(still) > 1 {
				still = append(still, parts[i])
			} else {
				a.c.commitParts(a.c.writing, parts[i:i+1:i+1], held)
			}
		}
		return nil
	}
	a.c.commitParts(a.c.writing, parts, held)
	return still
}

// nextHeld takes the next batch of a tenant's writes that wait. When there is none, the tenant's
// writes need not wait any longer, and nextHeld returns nil.
func (a *failedWrites) nextHeld(tenant string, waiting *waitingWrites) []*write {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting.writes = dropLate(waiting.writes)
	n := 0
	bytes := 0
	for n < min(len(waiting.writes), commitMost) && (n == 0 || bytes < commitBytes) {
		bytes += waiting.writes[n].size()
		n++
	}
	if n == 0 {
		delete(a.locked, tenant)
		return nil
	}
	batch := slices.Clone(waiting.writes[:n])
	waiting.writes = slices.Delete(waiting.writes, 0, n)
	return batch
}

// putBack puts writes back before the writes that came later.
func (a *failedWrites) putBack(waiting *waitingWrites, parts []*part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*write
	for _, p := range parts {
		all = append(all, p.writes()...)
	}
	waiting.writes = append(all, waiting.writes...)
}
