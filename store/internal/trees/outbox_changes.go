package trees

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// changesOf returns what the transaction does with a type.
func (f *followUp) changesOf(t *config.Type) *typeChanges {
	if f.byType[t.Number()] == nil {
		f.byType[t.Number()] = &typeChanges{t: t, begin: Beginning{Type: t}}
	}
	return f.byType[t.Number()]
}

// settle adds a settlement of a task after the deletion of its token row, and the token row that
// follows.
func (f *followUp) settle(t *config.Type, s asyncflow.Settlement) {
	changes := f.changesOf(t)
	changes.settled = append(changes.settled, s)
	switch {
	case s.Verdict.Final() != "":
	case s.Verdict.Kind == asyncflow.Advance:
		changes.begin.Settled = append(changes.begin.Settled, s)
	default:
		f.line(changes, s)
	}
}

// line puts a task in line after its settlement.
func (f *followUp) line(changes *typeChanges, s asyncflow.Settlement) {
	key := changes.t.LineKeyOf(s.Lease.Options)
	changes.tokens.Add(s.Lease.ID.Number, s.Lease.Seq+1, key, s.Verdict, f.now, f.now)
}

// announceReady announces the tasks that the transaction put in line. If its end is unknown, they
// may stand there, and no other transaction tells of them.
func (f *followUp) announceReady() {
	for _, changes := range f.byType {
		f.s.core.Wakeups.Announce(changes.t.Key(), changes.tokens.Earliest)
	}
}

// announce announces what else the transaction did.
func (f *followUp) announce() {
	f.s.hot.ChargeSubmits(f.tenant, f.charged)
	for _, changes := range f.byType {
		key := changes.t.Key()
		settled := append(changes.settled, changes.written...)
		f.s.core.CountSettled(key, settled...)
		hot.AnnounceFreed(f.ctx, f.s.hot, changes.t, settled)
		for _, settled := range settled {
			f.s.core.Watchers.Tell(key, settled.Lease.ID.Number)
		}
		for _, id := range changes.changed {
			f.s.core.Watchers.Tell(key, id)
		}
	}
}
