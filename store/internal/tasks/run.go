package tasks

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Run is where a task runs.
type Run struct {
	Since     time.Time     // when it was leased
	Wait      time.Duration // for which it was due until then; less than 0: it isn't known
	Heartbeat time.Time     // when the last one came; zero: none did
	Node      string        // id of the node that sends it, or handed it out
	Worker    string        // the name that the worker gave; see asyncflow.WorkerName
	Endpoint  string        // id of the endpoint; "": it isn't known, or none
	URL       string        // of the endpoint
	Claimer   string        // who asked for it; "": it is pushed
}

// complete fills in what follows from the columns of a run: how long the task was due, nil: that
// isn't known; and where it runs, if its lease names an endpoint or the type tells.
func (r *Run) complete(t *config.Type, stage string, due *time.Time, endpoint *string) {
	r.Wait = -1
	if due != nil {
		r.Wait = max(0, r.Since.Sub(*due))
	}
	r.Node = asyncflow.NodeID(r.Node)
	r.Endpoint = t.RunsAt(asyncflow.Lease{Stage: stage, Claimer: r.Claimer, LeasedAt: r.Since},
		endpoint)
	r.URL = t.EndpointURL(r.Endpoint)
}

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
	err = s.core.FollowOr(t.Tenant, func(db postgres.TenantDB) error {
		tag, err := db.Exec(ctx, t.SQL(0, sql), args...)
		stands = tag.RowsAffected() == 1
		return err
	})
	s.core.Watchers.Tell(t.Key(), id.Number)
	return stands, postgres.Wrap(err, "SetProgress(%s, %d)", id, seq)
}
