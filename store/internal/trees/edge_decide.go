package trees

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// contextMost is how many tasks one transaction gives the results of their dependencies: each may
// have MaxInlineResults bytes of them.
const contextMost = 16

// decision is what follows for a task from its edges; the zero value: it waits on.
type decision struct {
	verdict asyncflow.VerdictKind
	err     string // of a task that fails or is cancelled
}

func decide(edges []edge) decision {
	open := 0
	for _, e := range edges {
		switch {
		case e.status == edgeOpen:
			open++
		case !e.status.failed() || e.onFailure == asyncflow.DependentRuns:
		case e.onFailure == asyncflow.DependentCancelled:
			return decision{asyncflow.Cancel, failure(e)}
		default:
			return decision{asyncflow.Fail, failure(e)}
		}
	}
	if open > 0 {
		return decision{}
	}
	return decision{verdict: asyncflow.Retry}
}

// failure says why an edge failed.
func failure(e edge) string {
	name := e.task().String()
	if e.task().Number == 0 {
		name = fmt.Sprintf("of the type %s with the key %q", e.name, e.key)
	}
	how := "has " + string(e.status)
	switch e.status {
	case edgeStatus(asyncflow.StatusCancelled):
		how = "was cancelled"
	case edgeLate:
		how = "had not ended by " + e.until.UTC().Format(time.RFC3339)
	case edgeGone:
		how = "was deleted"
	}
	return fmt.Sprintf("depends_on[%d]: task %s %s", e.n, name, how)
}

// moveOn writes the verdicts of decided tasks, unless another transaction did so.
func (f edgeFollowUp) moveOn(t *config.Type, decided map[int64]decision) error {
	if len(decided) == 0 {
		return nil
	}
	leases, keys, err := f.takeDependents(t, decided)
	if err != nil {
		return err
	}
	for i, l := range leases {
		d := decided[l.ID.Number]
		l.Stage, l.Attempt = t.Mapped(l.Stage, l.Attempt)
		settled := asyncflow.Settlement{Lease: l, Verdict: asyncflow.Verdict{Kind: d.verdict},
			Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeDependencies, Error: d.err}}
		if d.verdict != asyncflow.Retry {
			f.settle(t, settled)
			continue
		}
		v := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: l.Stage, Attempt: l.Attempt,
			OrderTime: l.OrderTime, Reason: asyncflow.WaitDelay}
		if l.Options.ContextFrom == "" {
			changes := f.changesOf(t)
			changes.tokens.Add(l.ID.Number, l.Seq, keys[i], v, f.now, f.now)
			changes.changed = append(changes.changed, l.ID.Number)
			continue
		}
		if settled.Outcome.Output, err = f.dependencyContext(t, l.ID.Number); err != nil {
			return err
		}
		settled.Verdict = v
		f.settle(t, settled)
	}
	return nil
}

// TakeDependentsSQL deletes the token rows of tasks that wait for their dependencies. For its form
// see records.TakeAnyWaitSQL.
const TakeDependentsSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT k.t FROM unnest($2::bigint[]) AS u (id), LATERAL (
    SELECT ctid AS t FROM {wait} WHERE type = $1 AND id BETWEEN u.id AND u.id
      AND reason = 'dependencies'
    ORDER BY id LIMIT 1 FOR UPDATE) k))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, '')`

// takeDependents deletes the rows of decided tasks in `wait`, and returns them as leases, with
// their flow keys. Tasks that need too much memory at once are left to a later transaction.
func (f edgeFollowUp) takeDependents(
	t *config.Type, decided map[int64]decision,
) (leases []asyncflow.Lease, keys []string, err error) {
	for _, id := range slices.Sorted(maps.Keys(decided)) {
		leases = append(leases, asyncflow.Lease{ID: asyncflow.TaskID{Type: t.Name, Number: id}})
	}
	if err := records.ReadOptions(f.ctx, f.tx, t, leases); err != nil {
		return nil, nil, err
	}
	options := map[int64]asyncflow.Options{}
	created := map[int64]time.Time{}
	var ids []int64
	for _, l := range leases {
		if id := l.ID.Number; l.Options.ContextFrom != "" &&
			decided[id].verdict == asyncflow.Retry {
			if f.contexts++; f.contexts > contextMost {
				f.look(t.Number(), id)
				continue
			}
		}
		ids = append(ids, l.ID.Number)
		options[l.ID.Number] = l.Options
		created[l.ID.Number] = l.CreatedAt
	}
	leases = nil
	b := &pgx.Batch{}
	var l asyncflow.Lease
	var key string
	records.QueueTake(b, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows,
			[]any{&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.OrderTime, &key}, func() error {
				l.ID.Type = t.Name
				l.Options = options[l.ID.Number]
				l.CreatedAt = created[l.ID.Number]
				leases = append(leases, l)
				keys = append(keys, key)
				return nil
			})
		return err
	}, t.SQL(0, TakeDependentsSQL), t.Number(), ids)
	return leases, keys, f.tx.SendBatch(f.ctx, b).Close()
}
