package trees

import (
	"maps"
	"slices"
	"time"

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
	created map[int64]time.Time
	leases  []asyncflow.Lease // the rows that were deleted
}

func (f fanOutFollowUp) queueJoin(b *pgx.Batch, t *config.Type, all []*records.FanOut) *joins {
	j := &joins{followUp: f.followUp, t: t, byID: map[int64]*records.FanOut{},
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
	b.Queue(t.SQL(0, TakeParentsSQL), t.Number(), ids,
		records.Column(ids, func(id *int64) int16 { return j.byID[*id].Waits })).Query(j.read)
	j.options = records.QueueOptions(b, t, ids)
	j.created = records.QueueCreated(b, t, ids)
	return j
}

// TakeParentsSQL deletes the token rows of parents that wait for their children. The ORDER BY and
// the LIMIT leave the planner one plan: a walk down the index for each id.
const TakeParentsSQL = `
DELETE FROM {wait} k
USING unnest($2::bigint[], $3::smallint[]) AS u (id, seq), LATERAL (
  SELECT ctid FROM {wait} WHERE type = $1 AND id BETWEEN u.id AND u.id
    AND seq = u.seq AND reason = 'children'
  ORDER BY id LIMIT 1) l
WHERE k.ctid = l.ctid
RETURNING k.id, k.seq, k.stage, k.attempt, k.order_time`

func (j *joins) read(rows pgx.Rows) (err error) {
	lease := func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
		l.ID.Type = j.t.Name
		return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.OrderTime)
	}
	j.leases, err = pgx.CollectRows(rows, lease)
	return err
}

// join settles the tasks, once the batch has been read.
func (j *joins) join() error {
	halted, err := j.haltedAbove()
	if err != nil {
		return err
	}
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
		case halted[o.ID]:
			joined = asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled, Error: childStopped}
		case o.Stopped:
			joined.Error = j.failed[o.ID].text()
		default:
			joined.Output = j.lists[o.ID].context(j.t, j.s.core.Config.PublicURL)
		}
		j.joined += len(joined.Output)
		l.Options = j.options[l.ID.Number]
		l.CreatedAt = j.created[l.ID.Number]
		l.Stage, l.Attempt = j.t.Mapped(l.Stage, l.Attempt)
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

// haltedAbove returns the tasks whose children only ended because a task above is over, or about to
// be: they are cancelled as well, whoever is cancelled first.
func (j *joins) haltedAbove() (map[int64]bool, error) {
	var asked []asyncflow.Lease
	for _, l := range j.leases {
		why := j.failed[l.ID.Number]
		if l.Options = j.options[l.ID.Number]; why != nil && !why.found && l.Options.IsAwaited() {
			asked = append(asked, l)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	var halts Halts
	b := &pgx.Batch{}
	halts.Queue(b, j.t, ParentsOf(j.t, asked), j.now)
	if err := j.tx.SendBatch(j.ctx, b).Close(); err != nil {
		return nil, err
	}
	ids, _ := halts.split(j.t, asked)
	halted := map[int64]bool{}
	for _, id := range ids {
		halted[id] = true
	}
	return halted, nil
}
