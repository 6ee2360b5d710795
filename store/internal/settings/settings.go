package settings

import (
	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// Settings keeps what owners and operators configure: types, endpoints, schedules, tenants, alerts.
type Settings struct {
	core     *catalog.Core
	hot      *hot.Path
	counts   *counts.Counts
	creating *semaphore.Weighted // one tenant at a time
}

// New returns the settings of a database.
func New(core *catalog.Core, hot *hot.Path, counts *counts.Counts) *Settings {
	return &Settings{core: core, hot: hot, counts: counts, creating: semaphore.NewWeighted(1)}
}
