package store

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// Progress is a worker's report of how far it is.
type Progress struct {
	Percent int // 0 to 100
	Note    string
}

// SetProgress writes a worker's progress into its lease, and reports whether the lease stands.
func (s *tasks) SetProgress(
	ctx context.Context,
	t *Type,
	id asyncflow.TaskID,
	seq int,
	p Progress,
) (stands bool, err error) {
	tag, err := s.of(t.Tenant).Exec(ctx,
		t.at(0, `UPDATE {lease} SET progress = $3, note = $4 WHERE type = $5 AND id = $1 AND seq = $2`),
		id.Number, seq, p.Percent, orNull(p.Note), t.number)
	s.watched.tell(t.Key(), id.Number)
	return tag.RowsAffected() == 1, wrap(err, "SetProgress(%s, %d)", id, seq)
}
