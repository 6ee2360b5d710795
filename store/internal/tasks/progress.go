package tasks

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Progress is a worker's report of how far it is.
type Progress struct {
	Percent    int // 0 to 100
	Note       string
	Worker     string // the name that the worker gave; see asyncflow.WorkerName
	Checkpoint hot.Checkpoint
}

// progressSQL writes the progress into a lease.
const progressSQL = `
UPDATE {lease} SET progress = $3, note = $4, worker = coalesce($6, worker)
WHERE type = $5 AND id = $1 AND seq = $2`

var progressCheckedSQL = records.WriteCheckpointsSQL(
	progressSQL+`
	RETURNING type, id, seq, stage, $8::timestamptz AS at, $7::text AS document`, "$9")

// SetProgress writes a worker's progress into its lease, and reports whether the lease stands.
func (s *Tasks) SetProgress(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, p Progress,
) (stands bool, err error) {
	sql := progressSQL
	args := []any{id.Number, seq, p.Percent, postgres.OrNull(p.Note), t.Number(),
		postgres.OrNull(p.Worker)}
	if p.Checkpoint.Document != nil {
		sql = progressCheckedSQL
		args = append(args, string(p.Checkpoint.Document), p.Checkpoint.Arrived,
			s.core.Clock.Now().Add(records.FirstCheck))
	}
	tag, err := s.core.DB(t.Tenant).Exec(ctx, t.SQL(0, sql), args...)
	s.core.Watchers.Tell(t.Key(), id.Number)
	return tag.RowsAffected() == 1, postgres.Wrap(err, "SetProgress(%s, %d)", id, seq)
}
