package counts

import "github.com/asyncflow/asyncflow/store/internal/catalog"

// Counts reads what was counted: statistics, backlogs, the attempts at endpoints and by workers.
type Counts struct {
	core    *catalog.Core
	minutes *endpointMinutes
}

// New returns the counts of a database.
func New(core *catalog.Core) *Counts {
	return &Counts{core: core, minutes: newEndpointMinutes()}
}
