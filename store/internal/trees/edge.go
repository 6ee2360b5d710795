package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// An edge says that a task waits for the end of another one. The edge is open until then. Open
// edges are closed in two ways, which together miss nothing: the end of a task closes the edges on
// it (followEnded), and a look at a dependent closes its edges on tasks that ended earlier
// (followLook). Then a look decides on the dependent.

// edge is a row of edges: the n-th of the task id of the type number.
type edge struct {
	taskRef
	n         int16
	on        taskRef // id is 0 while no task has the key
	name      string  // of on's type; "": it was deleted
	key       string  // "": it was given by id
	onFailure asyncflow.OnFailure
	until     time.Time // zero: for ever
	status    edgeStatus
	gone      bool          // on's type was deleted
	ownKey    string        // the idempotency key of the task that waits
	waitFor   time.Duration // until minus the time when the edge opened; 0: for ever
}

// taskRef names a task of a tenant.
type taskRef struct {
	number int32 // of its type
	id     int64
}

// edgeStatus says how the other task ended: it is a final status, or one of these.
type edgeStatus string

const (
	edgeOpen edgeStatus = ""
	edgeLate edgeStatus = "late" // the other task didn't end in time
	edgeGone edgeStatus = "gone" // the other task was dropped with its roll or its type
)

// final returns the status of the other task, as far as the task that waits is concerned.
func (s edgeStatus) final() asyncflow.Status {
	if s == edgeLate || s == edgeGone {
		return asyncflow.StatusFailed
	}
	return asyncflow.Status(s)
}

// shown returns the status of an edge as callers see it.
func (e *edge) shown() string {
	switch {
	case e.status == edgeOpen && !e.gone && e.on.id != 0:
		return asyncflow.DependencyRunning
	case e.status == edgeOpen || e.status == edgeGone:
		return asyncflow.DependencyMissing
	case e.status == edgeLate:
		return asyncflow.DependencyLate
	}
	return string(e.status)
}

// failed reports whether the other task didn't succeed.
func (s edgeStatus) failed() bool {
	return s != edgeOpen && s.final() != asyncflow.StatusSucceeded
}

// insertEdgesSQL adds edges of tasks of one type.
const insertEdgesSQL = `
INSERT INTO {edges} (type, id, n, on_type, on_id, on_key, on_failure, until, key, wait_for)
SELECT $1, * FROM unnest($2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::text[],
  $7::text[], $8::timestamptz[], $9::text[], $10::interval[])`

func queueEdges(b *pgx.Batch, t *config.Type, edges []edge) {
	b.Queue(t.SQL(0, insertEdgesSQL), t.Number(),
		records.Column(edges, func(e *edge) int64 { return e.id }),
		records.Column(edges, func(e *edge) int16 { return e.n }),
		records.Column(edges, func(e *edge) int32 { return e.on.number }),
		records.Column(edges, func(e *edge) *int64 { return postgres.OrNull(e.on.id) }),
		records.Column(edges, func(e *edge) *string { return postgres.OrNull(e.key) }),
		records.Column(edges, func(e *edge) string { return string(e.onFailure) }),
		records.Column(edges, func(e *edge) *time.Time { return postgres.OrNull(e.until) }),
		records.Column(edges, func(e *edge) *string { return postgres.OrNull(e.ownKey) }),
		records.Column(edges, func(e *edge) *time.Duration { return postgres.OrNull(e.waitFor) }))
}

// ReadEdgesSQL reads the edges of tasks of one type, in order. An open edge by key has the task to
// which the key belongs now, or belonged to when its window ended.
const ReadEdgesSQL = `
SELECT e.type, e.id, e.n, e.on_type, coalesce(e.on_id, k.id, p.id, 0), coalesce(e.on_key, ''),
  e.on_failure, e.until, coalesce(e.status, ''), coalesce(y.name, d.name, ''), y.name IS NULL,
  coalesce(e.key, '')
FROM (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u, {edges} e
LEFT JOIN {types} y ON y.number = e.on_type
LEFT JOIN {deleted} d ON d.number = e.on_type
LEFT JOIN LATERAL (SELECT id FROM {keys}
  WHERE e.on_id IS NULL AND type = y.name AND key BETWEEN e.on_key AND e.on_key
  ORDER BY key LIMIT 1) k ON true
LEFT JOIN LATERAL (SELECT id FROM {past_keys}
  WHERE e.on_id IS NULL AND type = e.on_type AND key BETWEEN e.on_key AND e.on_key
  ORDER BY key LIMIT 1) p ON true
WHERE e.type = ANY (ARRAY[u.type]) AND e.id BETWEEN u.id AND u.id ORDER BY e.id, e.n`

func scanEdge(row pgx.CollectableRow) (e edge, err error) {
	var until *time.Time
	err = row.Scan(&e.number, &e.id, &e.n, &e.on.number, &e.on.id, &e.key, &e.onFailure, &until,
		&e.status, &e.name, &e.gone, &e.ownKey)
	e.until = postgres.OrZero(until)
	return e, err
}

// task returns the id of the other task; zero: it is not known.
func (e *edge) task() (id asyncflow.TaskID) {
	if e.name != "" && e.on.id != 0 {
		id = asyncflow.TaskID{Type: e.name, Number: e.on.id}
	}
	return id
}

// QueueGoneEdges queues looks at tasks that wait for tasks of a deleted type, at most JobBatch. The
// background job dependencies finds the remaining ones.
func QueueGoneEdges(b *pgx.Batch, t *config.Type, now time.Time) {
	b.Queue(t.SQL(0, `INSERT INTO {outbox} (kind, due, type, id)
		SELECT DISTINCT 'look', $2::timestamptz, type, id FROM (
		  SELECT type, id FROM {edges} WHERE on_type = $1 AND status IS NULL LIMIT $3) e`),
		t.Number(), now, catalog.JobBatch)
}

// DependsOn reports whether a task depends on another one, or did.
func (s *Trees) DependsOn(
	ctx context.Context, tenant string, id, on asyncflow.TaskID,
) (depends bool, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return false, err
	}
	other, err := s.core.TypeOf(ctx, tenant, on)
	if err != nil {
		return false, err
	}
	err = s.core.DB(tenant).QueryRow(ctx, t.SQL(0, `SELECT EXISTS (SELECT FROM {edges}
		WHERE type = $1 AND id = $2 AND on_type = $3 AND on_id = $4)`), t.Number(), id.Number,
		other.Number(), on.Number).Scan(&depends)
	return depends, postgres.Wrap(err, "DependsOn(%q, %s, %s)", tenant, id, on)
}

// DependenciesOf returns the dependencies of a task as they stand.
func DependenciesOf(
	ctx context.Context, s *Trees, t *config.Type, id asyncflow.TaskID,
) ([]DependencyState, error) {
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, ReadEdgesSQL), t.Number(),
		[]int64{id.Number})
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DependencyState, err error) {
		e, err := scanEdge(row)
		d.Task = e.task()
		d.OnFailure = e.onFailure
		d.Until = e.until
		d.Status = e.shown()
		if d.Key = e.key; d.Key != "" {
			d.Type = e.name
		}
		return d, err
	})
}

// DependencyState is a dependency as it stands.
type DependencyState struct {
	asyncflow.Dependency
	// Status is how the other task ended, or asyncflow.DependencyRunning and the like.
	Status string
	Until  time.Time // when the wait for it ends; zero: never
}
