package catalog

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Meter counts the work of this node. Its methods are called once a batch, on the hot path: they
// must be quick and safe for concurrent use.
type Meter interface {
	// Type returns the counters of a type.
	Type(config.TypeKey) TypeMeter
}

// TypeMeter has the counters of a type.
type TypeMeter interface {
	// Submitted counts new tasks that were accepted.
	Submitted(n int)
	// Started counts a task that is sent, or handed out, in a stage, by how long it was due.
	Started(stage string, wait time.Duration)
	// Settled counts an attempt with a written outcome. now is when it was written.
	Settled(s *asyncflow.Settlement, now time.Time)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Type(config.TypeKey) TypeMeter            { return noMeter{} }
func (noMeter) Submitted(int)                            {}
func (noMeter) Started(string, time.Duration)            {}
func (noMeter) Settled(*asyncflow.Settlement, time.Time) {}

// CountSubmitted counts new tasks of a type that this node accepted.
func (s *Core) CountSubmitted(key config.TypeKey, n int) { s.Config.Meter.Type(key).Submitted(n) }

// CountOne counts a settlement that was written, with the counters of its type.
func (s *Core) CountOne(
	key config.TypeKey, m TypeMeter, settled *asyncflow.Settlement, now time.Time,
) {
	m.Settled(settled, now)
	s.countAttempt(key, settled)
	s.countEnd(key, settled, now)
}

// CountSettled counts settlements that were written.
func (s *Core) CountSettled(key config.TypeKey, settled ...asyncflow.Settlement) {
	m := s.Config.Meter.Type(key)
	now := s.Clock.Now()
	for i := range settled {
		s.CountOne(key, m, &settled[i], now)
	}
}
