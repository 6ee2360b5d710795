package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// part holds the writes of one transaction for one task type.
type part struct {
	key      store.TypeKey
	inserts  []*submission
	extends  []*extension
	settles  []*ending
	earlier  []*extension // superseded by another extension of the same lease in extends
	repeated []*ending    // further settlements of a task: they must see how the first one went
}

// commit writes a batch in one transaction, but for what must wait for earlier writes.
func (c *Committer) commit(ctx context.Context, _ int, batch []*write) {
	c.commitParts(ctx, divide(c.failedWrites.divert(dropLate(batch))), c.failedWrites.hold)
}

// commitParts writes parts in one transaction. If a table is locked, held gets all parts, and the
// parts of the tenant that needs the table (none: the tenant isn't known). held takes over parts
// that must wait, and returns the remaining parts for another try. If Postgres refuses a tenant for
// another reason, that tenant is put aside, and the other tenants are committed together. If the
// tenant at fault isn't known, all are put aside.
func (c *Committer) commitParts(
	ctx context.Context, divided []*part, held func([]*part, store.Refused) (rest []*part),
) {
	var parts []*part
	var all []*store.Writes
	for _, p := range divided {
		t, err := c.store.Catalog.Type(p.key.Tenant, p.key.Type)
		if err != nil {
			c.failed(p, err)
			continue
		}
		parts = append(parts, p)
		all = append(all, &store.Writes{Type: t, New: insertions(p.inserts),
			Extended: extensions(p.extends), Settled: endings(p.settles)})
	}
	for len(parts) > 0 {
		refused, err := c.store.Commit(ctx, all)
		switch {
		case err == nil:
			c.committed(parts, all)
			return
		case store.IsHeld(err):
			if rest := held(parts, refused); len(rest) > 0 {
				c.commitParts(ctx, rest, held)
			}
			return
		case refused.To == 0: // it isn't known which, or whether
			c.log.Debug("a commit failed; its parts are tried apart", "types", len(parts), "error",
				err)
			for _, p := range parts {
				c.failedWrites.put(p)
			}
			return
		}
		for _, p := range parts[refused.From:refused.To] {
			c.failedWrites.put(p)
		}
		parts = slices.Delete(parts, refused.From, refused.To)
		all = slices.Delete(all, refused.From, refused.To)
	}
}

// committed answers the callers of parts that are committed, and then starts the tasks that are
// leased with them.
func (c *Committer) committed(parts []*part, all []*store.Writes) {
	leases := make([][]asyncflow.Lease, len(parts))
	for i, p := range parts {
		leases[i] = append(inserted(p.inserts), c.settled(all[i].Type, p.settles)...)
		c.extended(p, nil)
		if len(p.repeated) > 0 {
			c.failedWrites.put(settlesOf(p.key, p.repeated))
		}
	}
	for i, some := range leases {
		c.start(all[i].Type, some)
	}
}

// start starts tasks after the commit of their leases.
func (c *Committer) start(t *store.Type, leases []asyncflow.Lease) {
	if len(leases) > 0 {
		c.dispatcher.start(t, leases)
	}
}

// dropLate refuses writes for which no caller waits any more, and returns the remaining ones. While
// the database hangs, callers try again and again: without this, each try would be kept until its
// turn.
func dropLate[T interface{ refuseLate(now time.Time) bool }](batch []T) []T {
	now := time.Now()
	return slices.DeleteFunc(batch, func(w T) bool { return w.refuseLate(now) })
}

// refuseLate refuses a write if its caller no longer waits, and reports whether it did.
func (w *write) refuseLate(now time.Time) bool {
	late := func(until time.Time) bool { return !until.IsZero() && now.After(until) }
	switch {
	case w.insert != nil:
		return w.insert.refuseLate(now)
	case w.settle != nil && late(w.settle.until):
		w.settle.fail(unanswered("the database doesn't answer; report again"))
	case w.extend != nil && late(w.extend.until):
		w.extend.done(false, unanswered("the database doesn't answer; report again"))
	default:
		return false
	}
	return true
}

// refuseLate refuses a task if its caller no longer waits, and reports whether it did.
func (s *submission) refuseLate(now time.Time) bool {
	late := !s.until.IsZero() && now.After(s.until)
	if late {
		s.end(unanswered("the database doesn't answer; try again"))
	}
	return late
}

// divide sorts writes into parts by tenant and type, and the writes of a kind by task: batches lock
// in one order, but for a lease that one extends and another one ends.
func divide(batch []*write) []*part {
	var parts []*part
	byKey := map[store.TypeKey]*part{}
	var p *part
	for _, w := range batch {
		if p == nil || p.key != w.key {
			if p = byKey[w.key]; p == nil {
				p = &part{key: w.key}
				byKey[w.key] = p
				parts = append(parts, p)
			}
		}
		p.add(w)
	}
	slices.SortFunc(parts, func(a, b *part) int {
		return cmp.Or(strings.Compare(a.key.Tenant, b.key.Tenant),
			strings.Compare(a.key.Type, b.key.Type))
	})
	for _, p := range parts {
		p.sort()
	}
	return parts
}

// settlesOf returns a part of settlements alone.
func settlesOf(key store.TypeKey, settles []*ending) *part {
	p := &part{key: key, settles: settles}
	p.sort()
	return p
}

func (p *part) add(w *write) {
	switch {
	case w.insert != nil:
		p.inserts = append(p.inserts, w.insert)
	case w.extend != nil:
		p.extends = append(p.extends, w.extend)
	default:
		p.settles = append(p.settles, w.settle)
	}
}

func (p *part) sort() {
	slices.SortFunc(p.inserts, func(a, b *submission) int {
		return cmp.Compare(a.ID.Number, b.ID.Number)
	})
	slices.SortStableFunc(p.settles, func(a, b *ending) int {
		return cmp.Compare(a.Lease.ID.Number, b.Lease.ID.Number)
	})
	slices.SortStableFunc(p.extends, func(a, b *extension) int {
		return cmp.Or(cmp.Compare(a.ID.Number, b.ID.Number), cmp.Compare(a.Seq, b.Seq),
			a.rank()-b.rank(), a.Until.Compare(b.Until))
	})
	settles := p.settles[:0]
	for _, e := range p.settles {
		if n := len(settles); n > 0 && settles[n-1].Lease.ID.Number == e.Lease.ID.Number {
			p.repeated = append(p.repeated, e)
		} else {
			settles = append(settles, e)
		}
	}
	p.settles = settles
	extends := p.extends[:0]
	for i, e := range p.extends {
		if i+1 < len(p.extends) && e.sameLease(p.extends[i+1]) { // the last one wins
			next := p.extends[i+1]
			next.Checkpoint = next.Checkpoint.Later(e.Checkpoint)
			next.Seen = next.Seen.Or(e.Seen)
			p.earlier = append(p.earlier, e)
		} else {
			extends = append(extends, e)
		}
	}
	p.extends = extends
}

// writes returns the writes of a part.
func (p *part) writes() []*write {
	all := make([]*write, 0, len(p.inserts)+len(p.extends)+len(p.earlier)+len(p.settles))
	for _, s := range p.inserts {
		all = append(all, &write{key: p.key, insert: s})
	}
	for _, e := range slices.Concat(p.earlier, p.extends) {
		all = append(all, &write{key: p.key, extend: e})
	}
	for _, e := range slices.Concat(p.settles, p.repeated) {
		all = append(all, &write{key: p.key, settle: e})
	}
	return all
}

func (e *extension) sameLease(other *extension) bool {
	return e.ID.Number == other.ID.Number && e.Seq == other.Seq
}

// rank orders the extensions of a lease: an unconditional one wins over a conditional one.
func (e *extension) rank() int {
	if e.Had != nil {
		return 0
	}
	return 1
}

func insertions(items []*submission) []*store.Insertion {
	all := make([]*store.Insertion, len(items))
	for i, s := range items {
		all[i] = &s.Insertion
	}
	return all
}

func extensions(items []*extension) []*store.Extension {
	all := make([]*store.Extension, len(items))
	for i, e := range items {
		all[i] = &e.Extension
	}
	return all
}

func endings(items []*ending) []*store.Ending {
	all := make([]*store.Ending, len(items))
	for i, e := range items {
		all[i] = &e.Ending
	}
	return all
}

// inserted answers the callers after their tasks are committed. It returns the leases of tasks that
// begin at once.
func inserted(items []*submission) (leases []asyncflow.Lease) {
	for _, s := range items {
		if s.Lease != nil {
			leases = append(leases, *s.Lease)
		}
		s.result.ID = s.ID // its number may be another one now
		s.end(nil)
	}
	return leases
}

// extended answers the callers after their extensions are committed, or failed.
func (c *Committer) extended(p *part, err error) {
	for _, e := range slices.Backward(p.earlier) { // the one that won is next to it
		at := slices.IndexFunc(p.extends, e.sameLease)
		e.done(p.extends[at].Stands, err)
	}
	for _, e := range p.extends {
		e.done(e.Stands, err)
	}
}

// settled answers the callers of settlements. It returns the leases of the tasks that go on with
// their next stage at once.
func (c *Committer) settled(t *store.Type, items []*ending) (leases []asyncflow.Lease) {
	var ended []asyncflow.Settlement
	flows := t.Flow != nil
	for _, e := range items {
		if e.goesOn() {
			leases = append(leases, *e.Next)
		}
		if flows && e.written() {
			ended = append(ended, *e.Settlement)
		}
		e.done(e)
	}
	if keys := t.FreedKeys(ended); len(keys) > 0 {
		c.freed.Add(t.Key(), keys...)
	}
	return leases
}

// written reports whether this try wrote the settlement: not an earlier try, nor another
// settlement.
func (e *ending) written() bool { return e.Settled == store.Settled{} }

// goesOn reports whether the task goes on with its next stage at once.
func (e *ending) goesOn() bool { return e.Next != nil && e.written() }

// failed answers all callers of a part that can't be written.
func (c *Committer) failed(p *part, err error) {
	for _, s := range p.inserts {
		s.end(err)
	}
	c.extended(p, err)
	for _, e := range p.settles {
		e.fail(err)
	}
	for _, e := range p.repeated {
		e.fail(err)
	}
}

func (e *ending) fail(err error) {
	e.Settled.Err = err
	e.done(e)
}
