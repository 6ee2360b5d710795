package history

import (
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

const (
	// minutesKept is how long the history is known by minute.
	minutesKept = 24 * time.Hour
	// hoursKept is how long it is known by hour.
	hoursKept = 30 * 24 * time.Hour
)

// job is the name of the job that records the history, and of its lock.
const job = "history"

// History keeps what the tasks of each type did over time.
type History struct {
	core   *catalog.Core
	counts *counts.Counts
}

// New returns the history of a database.
func New(core *catalog.Core, counts *counts.Counts) *History {
	return &History{core: core, counts: counts}
}

// fill puts a tenant's schema into a statement.
func fill(tenant, sql string) string {
	return strings.ReplaceAll(sql, "{schema}", postgres.Quote(schema.Of(tenant)))
}
