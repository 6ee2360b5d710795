package upkeep

import (
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
)

// Upkeep does the work of the background jobs.
type Upkeep struct {
	core  *catalog.Core
	hot   *hot.Path
	tasks *tasks.Tasks
}

// New returns the upkeep of a database.
func New(core *catalog.Core, hot *hot.Path, tasks *tasks.Tasks) *Upkeep {
	return &Upkeep{core: core, hot: hot, tasks: tasks}
}
