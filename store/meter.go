package store

import "github.com/asyncflow/asyncflow"

// Meter counts what this node does. Its methods are called beside the hot path, once a
// batch: they must be quick and safe for concurrent use.
type Meter interface {
	// Type returns the counters of a type.
	Type(TypeKey) TypeMeter
}

// TypeMeter are the counters of a type.
type TypeMeter interface {
	// Submitted counts new tasks that were accepted.
	Submitted(n int)
	// Settled counts an attempt whose outcome was written.
	Settled(*asyncflow.Settlement)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Type(TypeKey) TypeMeter        { return noMeter{} }
func (noMeter) Submitted(int)                 {}
func (noMeter) Settled(*asyncflow.Settlement) {}

// countSubmitted counts those tasks of a call that are new.
func (s *Store) countSubmitted(tenant string, byType map[string][]int, results []Submitted) {
	for name, indexes := range byType {
		n := 0
		for _, i := range indexes {
			if results[i].Err == nil && !results[i].Existing {
				n++
			}
		}
		if n > 0 { // else nobody may know the type
			s.cfg.Meter.Type(TypeKey{tenant, name}).Submitted(n)
		}
	}
}

// countSettled counts settlements that were written.
func (s *Store) countSettled(key TypeKey, settled ...asyncflow.Settlement) {
	m := s.cfg.Meter.Type(key)
	for i := range settled {
		m.Settled(&settled[i])
	}
}
