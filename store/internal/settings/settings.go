package settings

import (
	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
)

// Settings keeps what owners and operators configure. Callers use it as one; inside, each noun has
// a type with the methods of its files.
type Settings struct {
	types
	endpoints
	schedules
	tenants
	tokens
	alerts
}

type (
	// base is what all settings need: the database, and checks of the tenant's quotas.
	base struct{ core *catalog.Core }
	// types keeps task types, with their versions and their rolls.
	types struct{ base }
	// endpoints keeps endpoints, with their secrets and their health, and the targets of on_final.
	endpoints struct {
		base
		counts *counts.Counts
	}
	// schedules keeps schedules.
	schedules struct{ base }
	// tenants makes, changes and drops tenants; it lists the audit, counts for quotas, and grants
	// submits by SQL.
	tenants struct {
		base
		creating *semaphore.Weighted // one tenant at a time
	}
	// tokens keeps what is known of tokens, and revokes them.
	tokens struct{ base }
	// alerts keeps the rules of alerts and their episodes.
	alerts struct{ base }
)

// New returns the settings of a database.
func New(core *catalog.Core, counts *counts.Counts) *Settings {
	b := base{core}
	return &Settings{types{b}, endpoints{b, counts}, schedules{b},
		tenants{b, semaphore.NewWeighted(1)}, tokens{b}, alerts{b}}
}
