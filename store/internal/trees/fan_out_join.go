package trees

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// joinBytes is how many bytes of results let a transaction join no more parents.
const joinBytes = 4 << 20

// joins are about to end the waits of tasks for their children. The transaction that deletes the
// row in wait has won; if there is none, the task was cancelled.
type joins struct {
	*followUp
	t       *config.Type
	byID    map[int64]*records.FanOut
	lists   map[int64]*resultList
	failed  map[int64]*childFailure
	options records.OptionsOf
	leases  []asyncflow.Lease // the rows that were deleted
}

func (f *followUp) queueJoin(b *pgx.Batch, t *config.Type, all []*records.FanOut) *joins {
	j := &joins{followUp: f, t: t, byID: map[int64]*records.FanOut{},
		lists: map[int64]*resultList{}, failed: map[int64]*childFailure{}}
	for _, o := range all {
		if f.joined > joinBytes {
			f.followLater(o) // a later transaction joins
			continue
		}
		o.Closed = true
		j.byID[o.ID] = o
		queueCloseVotes(b, t, o)
		switch {
		case o.Tally != nil:
		case o.Stopped:
			j.failed[o.ID] = &childFailure{o: o}
			j.failed[o.ID].queue(b, t, f.types)
		default:
			j.lists[o.ID] = &resultList{o: o}
			j.lists[o.ID].queue(b, t, f.types)
		}
	}
	ids := slices.Sorted(maps.Keys(j.byID))
	if len(ids) == 0 {
		return j
	}
	b.Queue(t.SQL(0, `
		DELETE FROM {wait} k USING unnest($2::bigint[], $3::smallint[]) AS u (id, seq)
		WHERE k.type = $1 AND k.id = ANY (ARRAY[u.id]) AND k.seq = u.seq AND k.reason = 'children'
		RETURNING k.id, k.seq, k.stage, k.attempt, k.order_time`), t.Number(), ids,
		records.Column(ids, func(id *int64) int16 { return j.byID[*id].Waits })).Query(j.read)
	j.options = records.QueueOptions(b, t, ids)
	return j
}

func (j *joins) read(rows pgx.Rows) (err error) {
	lease := func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
		l.ID.Type = j.t.Name
		return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.OrderTime)
	}
	j.leases, err = pgx.CollectRows(rows, lease)
	return err
}

// join settles the tasks, once the batch has been read.
func (j *joins) join() (err error) {
	for _, l := range j.leases {
		o := j.byID[l.ID.Number]
		joined := asyncflow.Outcome{Kind: asyncflow.OutcomeJoined}
		if way := o.Rule.Joined; way != nil {
			joined.Next = way.Next
			joined.Finish = way.Finish
		}
		switch {
		case o.Tally != nil:
			joined.Output, joined.Error = voted(o)
			j.changesOf(j.t).voters.add(o)
		case o.Stopped:
			joined.Error = j.failed[o.ID].text()
		default:
			joined.Output = j.lists[o.ID].context(j.t, j.s.core.Config.PublicURL)
		}
		j.joined += len(joined.Output)
		l.Options = j.options[l.ID.Number]
		l.Stage, l.Attempt = j.t.Place(l.Stage, l.Attempt)
		if j.t.NeedsPath(l, joined) {
			if joined.Path, err = hot.Passed(j.ctx, j.tx, j.t, l); err != nil {
				return err
			}
		}
		j.settle(j.t, asyncflow.Settlement{Lease: l, Outcome: joined,
			Verdict: asyncflow.Decide(j.t.TaskType, l, joined, j.now)})
	}
	return nil
}
