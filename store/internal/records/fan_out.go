package records

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// FanOut is a row of fan_outs: the children of a task in one stage.
type FanOut struct {
	FanOutKey
	Waits   int16 // seq of the task's row in wait
	Stage   string
	Rule    asyncflow.FanOut
	Count   int
	Spawned int     // children that are made, from the first one on
	Firsts  []int64 // the ids of the children are in runs, which begin with these,
	Starts  []int32 // at these indexes
	Types   []int32 // the types of their children; nil: the task's. 0: they can't be made
	Places  []int32 // see QueuePlaces
	Ended   ChildCounts
	Again   *int // the index at which a redrive goes on; nil: there is none
	// ToRedrive is how many failed or cancelled children the redrive hasn't come to.
	ToRedrive int
	Stopped   bool // no child is made any more, and the remaining ones are cancelled
	Closed    bool // the task no longer waits for children

	Tally *asyncflow.Tally // of votes; nil: it was not read, see readTallies

	PausedAt    *time.Time // since when no child begins; nil: they do
	PauseReason string
}

// FanOutColumns begins a query of fan-outs.
const FanOutColumns = fanOutColumns + `FROM {fan_outs} `

// FanOutColumnsOf is a query of the fan-outs that another query returns.
func FanOutColumnsOf(query string) string { return fanOutColumns + `FROM (` + query + `) f` }

const fanOutColumns = `SELECT type, id, seq, waits, stage, rule, count, spawned, firsts, starts,
	succeeded, failed, cancelled, again, coalesce(to_redrive, failed + cancelled), stopped, closed,
	paused_at, coalesce(pause_reason, ''), types `

// Columns returns what FanOutColumns are scanned into.
func (o *FanOut) Columns() []any {
	return []any{&o.Number, &o.ID, &o.Seq, &o.Waits, &o.Stage, &o.Rule, &o.Count, &o.Spawned,
		&o.Firsts, &o.Starts, &o.Ended.Succeeded, &o.Ended.Failed, &o.Ended.Cancelled, &o.Again,
		&o.ToRedrive, &o.Stopped, &o.Closed, &o.PausedAt, &o.PauseReason, &o.Types}
}

// LatestFanOut returns the latest fan-out of a task, or one of a seq unless that is 0; nil: there
// is none.
func LatestFanOut(
	ctx context.Context, db postgres.Querier, t *config.Type, id int64, seq int, lock string,
) (*FanOut, error) {
	o := &FanOut{}
	err := db.QueryRow(ctx, t.SQL(0, FanOutColumns+`
		WHERE type = $1 AND id = $2 AND ($3::int = 0 OR seq = $3::int)
		ORDER BY seq DESC LIMIT 1 `+lock), t.Number(), id, seq).Scan(o.Columns()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return o, err
}

// SaveFanOut writes what can change of a fan-out.
func SaveFanOut(ctx context.Context, tx pgx.Tx, t *config.Type, o *FanOut) error {
	b := &pgx.Batch{}
	QueueSaves(b, t, []*FanOut{o})
	return tx.SendBatch(ctx, b).Close()
}

// QueueSaves writes what can change of fan-outs. Once a task goes on, its pause is over. The
// transaction may have cancelled or redriven the tasks themselves since it read their fan-outs: a
// cancel stays, and so does the wait that a redrive began.
func QueueSaves(b *pgx.Batch, t *config.Type, all []*FanOut) {
	for _, o := range all {
		b.Queue(t.SQL(0, `UPDATE {fan_outs} SET spawned = $5, firsts = $6, starts = $7,
			succeeded = $8, failed = $9, cancelled = $10, again = $11,
			stopped = stopped OR $12, closed = $13,
			to_redrive = CASE WHEN $11::int IS NOT NULL THEN $14::int END,
			paused_at = CASE WHEN NOT $13 THEN paused_at END, types = $15
			WHERE type = $1 AND id = $2 AND seq = $3 AND waits = $4`), o.Number, o.ID, o.Seq,
			o.Waits, o.Spawned, o.Firsts, o.Starts, o.Ended.Succeeded, o.Ended.Failed,
			o.Ended.Cancelled, o.Again, o.Stopped, o.Closed, o.ToRedrive, o.Types)
	}
}

// ChildRun is the ids of some children: N of them from First on, which has an index.
type ChildRun struct {
	First int64
	Index int
	N     int
	Type  int32 // their type; 0: that of their parent
}

// Last returns the last id of a run.
func (r ChildRun) Last() int64 { return r.First + int64(r.N) - 1 }

// Position returns the roll of a run.
func (r ChildRun) Position() int { return asyncflow.TaskID{Number: r.First}.Position() }

// IDs returns the ids of a run.
func (r ChildRun) IDs() []int64 {
	ids := make([]int64, r.N)
	for i := range ids {
		ids[i] = r.First + int64(i)
	}
	return ids
}

// Runs returns the ids of the children that are made, with indexes from from to before to.
func (o *FanOut) Runs(from, to int) (all []ChildRun) {
	for i, first := range o.Firsts {
		var number int32
		if o.Types != nil {
			if number = o.Types[i]; number == 0 {
				continue
			}
		}
		start, end := int(o.Starts[i]), o.Spawned
		if i+1 < len(o.Starts) {
			end = int(o.Starts[i+1])
		}
		begin, end := max(start, from), min(end, to)
		if begin < end {
			all = append(all, ChildRun{first + int64(begin-start), begin, end - begin, number})
		}
	}
	return all
}

// Paused reports whether no child begins.
func (o *FanOut) Paused() bool { return o.PausedAt != nil }

// Capacity returns how many more children may run at once. There are no more votes than are needed.
func (o *FanOut) Capacity() int {
	if o.Tally != nil {
		return max(0, o.Tally.Needed()-(o.Spawned-o.Ended.Sum()))
	}
	if o.Rule.MaxParallel == 0 {
		return math.MaxInt
	}
	return max(0, o.Rule.MaxParallel-(o.Spawned-o.Ended.Sum()))
}

// SettledAll reports whether all children ended, and no other one will be made.
func (o *FanOut) SettledAll() bool {
	all := o.Spawned == o.Count
	if o.Tally != nil {
		all = o.Tally.Decided()
	}
	return o.Again == nil && o.Ended.Sum() == o.Spawned && (o.Stopped || all)
}

// Failed reports whether the task can't go on with what its children have done. While the failed
// ones are redriven, only those count that failed again.
func (o *FanOut) Failed() bool {
	if o.Tally != nil {
		out := o.Spawned == o.Count && o.Ended.Sum() == o.Count // there can be no further vote
		return o.Tally.Failed() || out && !o.Tally.Decided()
	}
	failed := o.Ended.Failed + o.Ended.Cancelled
	if o.Again != nil {
		failed -= o.ToRedrive
	}
	return o.Rule.OnChildFailure.TooMany(failed, o.Count)
}

// IsChildSQL reports whether the task t is a child, by how its options begin. The options of a
// child may have 64 KiB of shared input, which takes long to parse; the options of other tasks have
// less than 16 KiB, so that large ones need not even be read.
const IsChildSQL = `coalesce(pg_column_size(t.options) > 16384
    OR starts_with(t.options::text, '{"child":'), false)`

// VoteKey returns what the votes of a fan-out have in common.
func (o *FanOut) VoteKey() string {
	return (&asyncflow.Child{Parent: o.ID, Seq: int(o.Seq), Vote: true}).VoteKey()
}

// QueuePlaces reads the places of the children of a fan-out in the list of the worker that started
// them.
func QueuePlaces(b *pgx.Batch, t *config.Type, o *FanOut) {
	if o.Rule.Joined == nil {
		return
	}
	b.Queue(t.SQL(0, placesSQL), o.Number, o.ID, o.Seq).QueryRow(
		func(row pgx.Row) error { return row.Scan(&o.Places) })
}

// ReadPlaces is QueuePlaces at once.
func ReadPlaces(
	ctx context.Context, db postgres.Querier, t *config.Type, o *FanOut,
) error {
	if o.Rule.Joined == nil {
		return nil
	}
	return db.QueryRow(ctx, t.SQL(0, placesSQL), o.Number, o.ID, o.Seq).Scan(&o.Places)
}

const placesSQL = `SELECT places FROM {fan_outs} WHERE type = $1 AND id = $2 AND seq = $3`

// Place returns the place of a child in the list of its parent's worker, by its index.
func (o *FanOut) Place(index int) int {
	if o.Places == nil {
		return index
	}
	return int(o.Places[index])
}
