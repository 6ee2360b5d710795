package tasks

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Progress is a worker's report of how far it is.
type Progress struct {
	Percent int // 0 to 100
	Note    string
}

// SetProgress writes a worker's progress into its lease, and reports whether the lease stands.
func (s *Tasks) SetProgress(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, p Progress,
) (stands bool, err error) {
	tag, err := s.core.DB(t.Tenant).Exec(ctx,
		t.SQL(0, `UPDATE {lease} SET progress = $3, note = $4 WHERE type = $5 AND id = $1
			AND seq = $2`),
		id.Number, seq, p.Percent, postgres.OrNull(p.Note), t.Number())
	s.core.Watchers.Tell(t.Key(), id.Number)
	return tag.RowsAffected() == 1, postgres.Wrap(err, "SetProgress(%s, %d)", id, seq)
}
