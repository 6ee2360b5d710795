package catalog

import (
	"github.com/asyncflow/asyncflow/store/internal/config"
)

import "github.com/asyncflow/asyncflow"

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
	// Settled counts an attempt with a written outcome.
	Settled(*asyncflow.Settlement)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Type(config.TypeKey) TypeMeter { return noMeter{} }
func (noMeter) Submitted(int)                 {}
func (noMeter) Settled(*asyncflow.Settlement) {}

// CountSubmitted counts new tasks of a type that this node accepted.
func (s *Core) CountSubmitted(key config.TypeKey, n int) { s.Config.Meter.Type(key).Submitted(n) }

// CountSettled counts settlements that were written.
func (s *Core) CountSettled(key config.TypeKey, settled ...asyncflow.Settlement) {
	m := s.Config.Meter.Type(key)
	for i := range settled {
		m.Settled(&settled[i])
	}
}
