package trees

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// The end of a task may move tasks that depend on it, or its parent. The transaction that ends it
// only writes a row in outbox. FollowUp does the rest in a transaction of its own, which deletes
// the row. The node that wrote the row calls it at once, and a background job later, so that
// nothing is lost with a node.

const (
	// followUpPause is how long a row that can't be handled rests, with the other rows about its
	// task. lockedPause is the same for a row that meets a lock: then this node tries again at
	// once. It is longer than two rounds that meet a lock, so that rows of other tasks go on
	// between them.
	followUpPause = 10 * time.Second
	lockedPause   = 1500 * time.Millisecond

	// followSoon is how soon a row must be due for its FollowUp to be called again just then. A
	// background job finds the rows that are due later.
	followSoon = 2 * time.Second
)

// followSettings are set in the transaction of a FollowUp. Its statements find rows by ids.
var followSettings = func() map[string]string {
	all := maps.Clone(postgres.PinnedSettings)
	all["lock_timeout"] = followPatience
	return all
}()

// followPatience is how long a statement of FollowUp waits for a lock: meanwhile other tenants wait
// for their turn.
const followPatience = "300ms"

// chunks bound one transaction of FollowUp, or of SweepFanOuts.
type chunks struct {
	edges int // of tasks of one type that it closes
	spawn int // children that it makes
	stop  int // children that it cancels, redrives, pauses or gives a priority
	count int // children that a sweep counts; of one task it counts all
}

var followUpChunks = chunks{edges: 1000, spawn: 1000, stop: 500, count: 20_000}

// RestFollowUp leaves a row that a FollowUp of one row could not handle to later, with the other
// rows about its task. failure is why it could not. Without an error, the row met a lock, and the
// caller tries again after a while. Row 0 is none: a FollowUp that couldn't begin, as its tenant
// moves, has met a lock, too.
func (s *Trees) RestFollowUp(
	ctx context.Context, tenant string, row int64, failure error,
) (again time.Duration, err error) {
	again = followUpPause
	locked := postgres.State(failure) == pgerrcode.LockNotAvailable
	if locked {
		again = lockedPause
		failure = nil
	}
	if row == 0 && !locked {
		return 0, postgres.Wrap(failure, "FollowUp(%q)", tenant)
	}
	if row == 0 {
		return again, nil
	}
	if err := s.rest(ctx, tenant, row, again); err != nil {
		return 0, postgres.Wrap(errors.Join(failure, err), "FollowUp(%q)", tenant)
	}
	return again, postgres.Wrap(failure, "FollowUp(%q)", tenant)
}

// rest leaves a row to later, with the other rows about its task.
func (s *Trees) rest(ctx context.Context, tenant string, seq int64, pause time.Duration) error {
	now := s.core.Clock.Now()
	_, err := s.core.FollowDB(tenant).Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		UPDATE {outbox} SET due = $3 WHERE seq = ANY (ARRAY(
		  SELECT o.seq FROM {outbox} b JOIN {outbox} o ON o.type = b.type AND o.id = b.id
		  WHERE b.seq = $1 AND o.due <= $2 FOR UPDATE OF o SKIP LOCKED))`), seq, now,
		now.Add(pause))
	return err
}

// followUp is what the transaction of a FollowUp does. Each kind of row has a type beside it, with
// the methods that handle it: edgeFollowUp, signalFollowUp, fanOutFollowUp, priorityFollowUp,
// startFollowUp, finalFollowUp.
type followUp struct {
	ctx    context.Context
	s      *Trees
	tx     pgx.Tx
	tenant string
	now    time.Time
	byType map[int32]*typeChanges
	types  typesOf
	last   pgx.Batch           // what it writes at its end
	outbox []records.OutboxRow // what is left to do after it
	runs   []*run              // numbers that were taken for it
	await  map[int32]bool      // types that are to be marked as awaited after it
	known  map[int32]bool      // types of children whose rolls were read in it

	spawned, spawnedBytes int // children, and tasks that attempts started, made in it
	toldBytes             int // of the results that the notifications made in it have

	listed int // bytes of the lists of tasks to start that it read, for which their parents wait

	makesChildren bool      // whether any are to be made in it
	stopped       int       // children cancelled, redriven, paused or given a priority in it
	interrupted   int       // running children cancelled in it before their turn
	contexts      int       // tasks that got the results of their dependencies in it
	joined        int       // bytes of results and signals of the tasks that go on in it
	charged       int       // tasks to count in the tenant's submits_per_second
	locked        int       // keys of tasks to start that it found locked
	next          time.Time // when the next row is due within followSoon; zero: none is
}

// typeChanges is what a followUp does with tasks of a type.
type typeChanges struct {
	t       *config.Type
	tokens  records.Tokens
	settled []asyncflow.Settlement
	written []asyncflow.Settlement // that are written already
	changed []int64                // tasks with another token row
	begin   Beginning              // of tasks that may begin, or go on, at once
	voters  voters                 // on tasks that were decided on
}

func (s *Trees) newFollowUp(ctx context.Context, tenant string) *followUp {
	f := &followUp{ctx: ctx, s: s, tenant: tenant, now: s.core.Clock.Now(),
		byType: map[int32]*typeChanges{}, types: typesOf{}, await: map[int32]bool{},
		known: map[int32]bool{}}
	for _, t := range s.core.Catalog.TypesOf(tenant) {
		f.types[t.Number()] = t
	}
	return f
}

// takeOutboxSQL takes rows and, if they are about fan-outs, locks the fan-outs in their order. It
// skips locked rows.
const takeOutboxSQL = `
WITH taken AS (
  DELETE FROM {outbox} WHERE seq = ANY (ARRAY(
    SELECT seq FROM {outbox} WHERE due <= $1 ORDER BY due, seq LIMIT $2 FOR UPDATE SKIP LOCKED))
  RETURNING seq, kind, type, id, fan_out, succeeded, failed, cancelled, at)
SELECT r.*, o.* FROM (SELECT * FROM taken ORDER BY type, id, fan_out) r LEFT JOIN LATERAL (
  ` + records.FanOutColumns + `
  WHERE type = r.type AND id = r.id AND seq = r.fan_out FOR UPDATE SKIP LOCKED) o ON true`

// nextOutboxSQL reads when the next row is due, between two times.
const nextOutboxSQL = `
SELECT due FROM {outbox} WHERE due > $1 AND due <= $2 ORDER BY due, seq LIMIT 1`

// take takes rows that are due. It also reads when the next one is: a row of another node, or of a
// transaction by SQL, was announced, but may not be due yet by this node's clock, which is behind.
func (f *followUp) take(n int) (taken []records.OutboxRow, err error) {
	b := &pgx.Batch{}
	postgres.QueueSettings(b, followSettings)
	b.Queue(f.shared().SQL(0, takeOutboxSQL), f.now, n).Query(
		func(rows pgx.Rows) error {
			taken, err = pgx.CollectRows(rows, scanOutbox)
			return err
		})
	b.Queue(f.shared().SQL(0, nextOutboxSQL), f.now, f.now.Add(followSoon)).Query(
		func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&f.next}, func() error { return nil })
			return err
		})
	err = f.tx.SendBatch(f.ctx, b).Close()
	return taken, err
}

func scanOutbox(row pgx.CollectableRow) (r records.OutboxRow, err error) {
	into := []any{&r.Seq, &r.Kind, &r.Number, &r.ID, &r.FanOut, &r.Ended.Succeeded, &r.Ended.Failed,
		&r.Ended.Cancelled, &r.At}
	var o records.FanOut
	columns := o.Columns()
	if row.RawValues()[len(into)] == nil { // there is none
		clear(columns)
	} else {
		r.Locked = &o
	}
	return r, row.Scan(append(into, columns...)...)
}

// handle handles rows. Ids ascend, so that transactions lock rows in one order.
func (f *followUp) handle(taken []records.OutboxRow) error {
	slices.SortFunc(taken, func(a, b records.OutboxRow) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.FanOut, b.FanOut))
	})
	taken = f.putBack(taken)
	ids := map[records.OutboxKind]map[int32][]int64{}
	var starts, trees, finals []records.OutboxRow
	for _, r := range taken {
		switch r.Kind {
		case records.OutboxSignalKey, records.OutboxSignal, records.OutboxSignalWaits,
			records.OutboxEnded, records.OutboxSubmitted, records.OutboxLook:
			if ids[r.Kind] == nil {
				ids[r.Kind] = map[int32][]int64{}
			}
			ids[r.Kind][r.Number] = append(ids[r.Kind][r.Number], r.ID)
		case records.OutboxStart:
			starts = append(starts, r)
		case records.OutboxFinal:
			finals = append(finals, r)
		case records.OutboxChildren, records.OutboxSpawn, records.OutboxStop, records.OutboxPause,
			records.OutboxPriority:
			trees = append(trees, r)
		default: // a kind of a later version, for its nodes
			r.Due = f.now.Add(followUpPause)
			f.outbox = append(f.outbox, r)
		}
	}
	edges := edgeFollowUp{f}
	signals := signalFollowUp{f}
	for _, each := range []struct {
		kind   records.OutboxKind
		follow func(t *config.Type, ids []int64) error
	}{
		{records.OutboxSignalKey, signals.followKeyed},
		{records.OutboxSignal, signals.followSignals},
		{records.OutboxSignalWaits, signals.followSignalWaits},
		{records.OutboxEnded, edges.followEnded},
		{records.OutboxSubmitted, edges.followSubmitted},
		{records.OutboxLook, edges.followLook},
	} {
		if err := f.followEach(ids[each.kind], each.follow); err != nil {
			return err
		}
	}
	f.makesChildren = slices.ContainsFunc(trees, func(r records.OutboxRow) bool {
		return r.Kind == records.OutboxSpawn
	})
	if err := (finalFollowUp{f}).followFinals(finals); err != nil {
		return err
	}
	if err := (startFollowUp{f}).followStarts(starts); err != nil {
		return err
	}
	return fanOutFollowUp{priorityFollowUp{f}}.followTrees(trees)
}

// putBack leaves rows about fan-outs that another transaction locks to a later one, and returns the
// rest. Without a rest it returns all: only a transaction without locks may wait.
func (f *followUp) putBack(taken []records.OutboxRow) (rest []records.OutboxRow) {
	var locked []records.OutboxRow
	for _, r := range taken {
		if r.FanOut != 0 && r.Locked == nil {
			locked = append(locked, r)
		} else {
			rest = append(rest, r)
		}
	}
	if len(rest) == 0 {
		return taken
	}
	f.outbox = append(f.outbox, locked...)
	return rest
}

// followEach calls follow with the tasks of each type. A type that was deleted has none.
func (f *followUp) followEach(
	byType map[int32][]int64, follow func(t *config.Type, ids []int64) error,
) error {
	for _, number := range slices.Sorted(maps.Keys(byType)) {
		t, err := f.typeNow(f.types[number], number)
		if err == nil && t != nil {
			err = follow(t, byType[number])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look queues a look at the edges of a task in a later transaction.
func (f *followUp) look(number int32, id int64) { f.lookAt(number, id, time.Time{}) }

// lookAt queues a look at the edges of a task, due at a time.
func (f *followUp) lookAt(number int32, id int64, due time.Time) {
	f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxLook, Due: due,
		Number: number, ID: id})
}

// write writes what the transaction collected, and commits it.
func (f *followUp) write() error {
	numbers := slices.Sorted(maps.Keys(f.byType))
	all := records.Inserts{Node: f.s.core.Config.Node}
	for _, number := range numbers {
		changes := f.byType[number]
		f.begin(changes)
		all.AddLeases(changes.t, changes.begin.Leases, nil)
		records.QueueSettlements(&f.last, changes.t, changes.settled, &changes.tokens, f.now)
		changes.voters.queue(&f.last, changes.t, f.now)
		all.AddTally(changes.t, records.Tally{Submitted: len(changes.begin.New)})
	}
	all.Outbox = f.outbox
	all.Tables = config.NewTables(f.tenant, config.SharedSet)
	all.Queue(&f.last, f.now)
	return postgres.CommitWith(f.ctx, f.tx, &f.last)
}
