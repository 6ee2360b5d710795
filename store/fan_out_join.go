package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// joinBytes is how many bytes of results let a transaction join no more parents.
const joinBytes = 4 << 20

// join ends the waits of tasks for their children. The transaction that deletes the row in wait has
// won; if there is none, the task was cancelled.
func (f *followUp) join(t *Type, all []*fanOut) error {
	byID := map[int64]*fanOut{}
	for _, o := range all {
		if f.joined > joinBytes {
			f.spawnLater(o) // a later transaction joins
			continue
		}
		o.closed, byID[o.id] = true, o
	}
	leases, err := f.takeParents(t, byID)
	if err != nil {
		return err
	}
	lists, err := f.resultLists(t, leases, byID)
	if err != nil {
		return err
	}
	for _, l := range leases {
		o, joined := byID[l.ID.Number], asyncflow.Outcome{Kind: asyncflow.OutcomeJoined}
		if o.stopped {
			joined.Error = fmt.Sprintf("of %d children, %d failed and %d were cancelled", o.count,
				o.ended.failed, o.ended.cancelled+o.count-o.spawned)
		} else {
			joined.Output = lists[o.id].context(t)
		}
		f.joined += len(joined.Output)
		l.Stage, l.Attempt = t.Place(l.Stage, l.Attempt)
		f.settle(t, asyncflow.Settlement{Lease: l, Outcome: joined,
			Verdict: asyncflow.Decide(t.TaskType, l, joined, f.now)})
	}
	return nil
}

// takeParents deletes the rows in wait of tasks that wait for their children, and returns them as
// leases.
func (f *followUp) takeParents(
	t *Type, byID map[int64]*fanOut,
) (leases []asyncflow.Lease, err error) {
	ids := slices.Sorted(maps.Keys(byID))
	rows, err := f.tx.Query(f.ctx, t.at(0, `
		DELETE FROM {wait} k USING unnest($2::bigint[], $3::smallint[]) AS u (id, seq)
		WHERE k.type = $1 AND k.id = ANY (ARRAY[u.id]) AND k.seq = u.seq AND k.reason = 'children'
		RETURNING k.id, k.seq, k.stage, k.attempt, k.order_time`), t.number, ids,
		column(ids, func(id *int64) int16 { return byID[*id].waits }))
	if err != nil {
		return nil, err
	}
	leases, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
		l.ID.Type = t.Name
		return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.OrderTime)
	})
	if err == nil && len(leases) > 0 {
		err = readOptions(f.ctx, f.tx, t, leases)
	}
	return leases, err
}
