package tasks

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Tasks reads, lists and watches tasks, and changes one or many of them.
type Tasks struct {
	core      *catalog.Core
	hot       *hot.Path
	trees     *trees.Trees
	counts    *counts.Counts
	countTime time.Duration
}

// New returns the tasks of a database.
func New(core *catalog.Core, hot *hot.Path, trees *trees.Trees, counts *counts.Counts) *Tasks {
	return &Tasks{core: core, hot: hot, trees: trees, counts: counts, countTime: countTime}
}

// Progress is a worker's report of how far it is.
type Progress struct {
	Percent int // 0 to 100
	Note    string
}

// SetProgress writes a worker's progress into its lease, and reports whether the lease stands.
func (s *Tasks) SetProgress(
	ctx context.Context, t *catalog.Type, id asyncflow.TaskID, seq int, p Progress,
) (stands bool, err error) {
	tag, err := s.core.DB(t.Tenant).Exec(ctx,
		t.SQL(0, `UPDATE {lease} SET progress = $3, note = $4 WHERE type = $5 AND id = $1 AND seq = $2`),
		id.Number, seq, p.Percent, catalog.OrNull(p.Note), t.Number())
	s.core.Watchers.Tell(t.Key(), id.Number)
	return tag.RowsAffected() == 1, postgres.Wrap(err, "SetProgress(%s, %d)", id, seq)
}
