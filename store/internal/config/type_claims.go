package config

import "github.com/asyncflow/asyncflow"

// InLineForClaims reports whether a task in line at a stage waits for a claimer. Tasks that fan
// out there go to a dispatcher.
func InLineForClaims(t *Type, stage string) bool {
	for i := range t.Stages {
		if t.Stages[i].Mode == asyncflow.ModeClaim {
			stage, _ = t.Mapped(stage, 1)
			i = t.StageIndex(stage)
			return i >= 0 && t.Stages[i].Mode == asyncflow.ModeClaim && t.Stages[i].Spreads() == nil
		}
	}
	return false
}
