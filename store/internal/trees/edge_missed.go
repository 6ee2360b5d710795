package trees

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// edgeCursor is how far a sweep of open edges has come: it goes through two indexes at once.
type edgeCursor struct {
	byID  taskRef
	byKey typedKey
}

// OpenEdges returns a time that has come for each of some tenants with open edges.
func (s *Trees) OpenEdges(ctx context.Context, tenants []string) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants, `SELECT i, CASE WHEN
		EXISTS (SELECT FROM {schema}.edges WHERE status IS NULL AND on_id IS NOT NULL) OR
		EXISTS (SELECT FROM {schema}.edges WHERE status IS NULL AND on_key IS NOT NULL)
		THEN to_timestamp(0) END`)
	return all, postgres.Wrap(err, "OpenEdges")
}

// SweepOpenEdges looks for tasks that ended, or are gone, while dependents still wait for them: the
// node that ended one didn't know, or its row in `outbox` was lost. It looks at up to JobBatch
// edges by id, and as many by key, and goes on after them the next time. It returns how many such
// tasks it found.
func (s *Trees) SweepOpenEdges(ctx context.Context, tenant string) (n int, err error) {
	f := edgeFollowUp{s.newFollowUp(ctx, tenant)}
	at := s.edgeCursors.get(tenant)
	err = pgx.BeginFunc(ctx, s.core.FollowDB(tenant), func(tx pgx.Tx) error {
		f.tx = tx
		ended, err := f.missedEnds(&at)
		if err != nil {
			return err
		}
		for k, status := range ended {
			if status != edgeGone {
				f.outbox = append(f.outbox,
					records.OutboxRow{Kind: records.OutboxEnded, Number: k.number, ID: k.id})
			} else if err := f.closeGone(k); err != nil {
				return err
			}
		}
		n = len(ended)
		return f.write()
	})
	if err != nil {
		return 0, postgres.Wrap(err, "SweepOpenEdges(%q)", tenant)
	}
	s.edgeCursors.put(tenant, at)
	if n > 0 {
		s.core.TellFollowUp(tenant)
	}
	return n, nil
}

// DryRunOpenEdges counts the tasks that the next SweepOpenEdges of this node would find.
func (s *Trees) DryRunOpenEdges(ctx context.Context, tenant string) ([]catalog.Due, error) {
	f := edgeFollowUp{s.newFollowUp(ctx, tenant)}
	at := s.edgeCursors.get(tenant)
	var ended map[taskRef]edgeStatus
	err := pgx.BeginFunc(ctx, s.core.FollowDB(tenant), func(tx pgx.Tx) (err error) {
		f.tx = tx
		ended, err = f.missedEnds(&at)
		return err
	})
	if err != nil || len(ended) == 0 {
		return nil, postgres.Wrap(err, "DryRunOpenEdges(%q)", tenant)
	}
	return []catalog.Due{{Tenant: tenant, Rows: len(ended)}}, nil
}

// missedEnds returns the ended or gone tasks among the targets of the next open edges.
func (f edgeFollowUp) missedEnds(at *edgeCursor) (map[taskRef]edgeStatus, error) {
	on, err := f.openEdges(at)
	if err != nil {
		return nil, err
	}
	ended := map[taskRef]edgeStatus{}
	for number, ids := range on {
		err := f.findEnded(number, ids, ended)
		if errors.Is(err, config.ErrElsewhere) { // this node doesn't know the type yet
			continue
		}
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// openEdges returns the tasks to which open edges lead, by type, from a cursor on, and moves that.
// At the end it is zero.
func (f edgeFollowUp) openEdges(at *edgeCursor) (map[int32][]int64, error) {
	on := map[int32][]int64{}
	byID, err := f.openByID(on, at.byID)
	if err != nil {
		return nil, err
	}
	byKey, err := f.openByKey(on, at.byKey)
	*at = edgeCursor{byID, byKey}
	return on, err
}

func (f edgeFollowUp) openByID(on map[int32][]int64, after taskRef) (next taskRef, err error) {
	rows, _ := f.tx.Query(f.ctx, config.NewTables(f.tenant, config.SharedSet).SQL(0, `
		SELECT on_type, on_id FROM {edges}
		WHERE status IS NULL AND on_id IS NOT NULL AND (on_type, on_id) > ($1, $2)
		ORDER BY on_type, on_id LIMIT $3`), after.number, after.id, catalog.JobBatch)
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&next.number, &next.id}, func() error {
		n++
		on[next.number] = append(on[next.number], next.id)
		return nil
	})
	if n < catalog.JobBatch {
		next = taskRef{}
	}
	return next, err
}

func (f edgeFollowUp) openByKey(on map[int32][]int64, after typedKey) (next typedKey, err error) {
	rows, _ := f.tx.Query(f.ctx, config.NewTables(f.tenant, config.SharedSet).SQL(0, `
		SELECT e.on_type, e.on_key, coalesce(k.id, p.id, 0) FROM (
		  SELECT on_type, on_key FROM {edges}
		  WHERE status IS NULL AND on_key IS NOT NULL AND (on_type, on_key) > ($1, $2)
		  ORDER BY on_type, on_key LIMIT $3) e
		LEFT JOIN {types} y ON y.number = e.on_type
		LEFT JOIN LATERAL (SELECT id FROM {keys}
		  WHERE type = y.name AND key BETWEEN e.on_key AND e.on_key ORDER BY key LIMIT 1) k ON true
		LEFT JOIN LATERAL (SELECT id FROM {past_keys}
		  WHERE type = e.on_type AND key BETWEEN e.on_key AND e.on_key ORDER BY key LIMIT 1) p
		  ON true
		ORDER BY e.on_type, e.on_key`), after.number, after.key, catalog.JobBatch)
	n := 0
	holder := int64(0)
	_, err = pgx.ForEachRow(rows, []any{&next.number, &next.key, &holder}, func() error {
		if n++; holder != 0 {
			on[next.number] = append(on[next.number], holder)
		}
		return nil
	})
	if n < catalog.JobBatch {
		next = typedKey{}
	}
	return next, err
}

// closeGone closes open edges on a task that is gone, at most a chunk of them, and queues looks at
// their dependents.
func (f edgeFollowUp) closeGone(on taskRef) error {
	rows, _ := f.tx.Query(f.ctx, config.NewTables(f.tenant, config.SharedSet).SQL(0, `
		UPDATE {edges} e SET status = 'gone' FROM (
		  SELECT type, id, n FROM {edges} WHERE on_type = $1 AND on_id = $2 AND status IS NULL
		  LIMIT $3 FOR UPDATE) o
		WHERE e.type = ANY (ARRAY[o.type]) AND e.id BETWEEN o.id AND o.id
		  AND e.n BETWEEN o.n AND o.n RETURNING e.type, e.id`),
		on.number, on.id, f.s.chunks.edges)
	var k taskRef
	_, err := pgx.ForEachRow(rows, []any{&k.number, &k.id}, func() error {
		f.look(k.number, k.id)
		return nil
	})
	return err
}
