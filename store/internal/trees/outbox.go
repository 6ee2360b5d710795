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
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
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
	// followPatience is how long a statement of FollowUp waits for a lock: meanwhile other tenants
	// wait for their turn.
	followPatience = "300ms"
)

// chunks bound one transaction of FollowUp, or of SweepFanOuts.
type chunks struct {
	rows  int // of outbox that it handles
	edges int // of tasks of one type that it closes
	spawn int // children that it makes
	stop  int // children that it cancels, redrives or pauses
	count int // children that a sweep counts; of one task it counts all
}

var followUpChunks = chunks{rows: 500, edges: 1000, spawn: 1000, stop: 500, count: 20_000}

// FollowUp does some of what earlier transactions of a tenant have left to do, and reports whether
// there may be more. Tasks for which starter has capacity begin at once; nil: all go in line. What
// fails is tried again after a pause.
//
// starter is asked inside the transaction, as that is what writes either the lease of a task or its
// row in line. Asked later, each task that begins would first get a row in line, and a second
// transaction would have to take it from there. So starter must answer without waiting, and without
// calling the store's database: rows are locked until it returns.
func (s *Trees) FollowUp(
	ctx context.Context, tenant string, starter Starter,
) (more bool, err error) {
	more, _, err = s.tryFollowUp(ctx, tenant, s.chunks.rows, starter)
	if err == nil || ctx.Err() != nil {
		return more, postgres.Wrap(err, "FollowUp(%q)", tenant)
	}
	if catalog.RolledOn(err) {
		_ = s.core.Catalog.RefreshTenant(ctx, tenant)
	}
	_, bad, err := s.tryFollowUp(ctx, tenant, 1, starter) // so that one row holds up no other
	if err == nil {
		return true, nil
	}
	if bad == 0 {
		return false, postgres.Wrap(err, "FollowUp(%q)", tenant)
	}
	if postgres.State(err) != pgerrcode.LockNotAvailable {
		late := s.rest(ctx, tenant, bad, followUpPause)
		return late == nil, postgres.Wrap(errors.Join(err, late), "FollowUp(%q)", tenant)
	}
	if err := s.rest(ctx, tenant, bad, lockedPause); err != nil {
		return false, postgres.Wrap(err, "FollowUp(%q)", tenant)
	}
	time.AfterFunc(lockedPause, func() { s.core.TellFollowUp(tenant) })
	return true, nil // other rows go on
}

// rest leaves a row to later, with the other rows about its task.
func (s *Trees) rest(ctx context.Context, tenant string, seq int64, pause time.Duration) error {
	now := s.core.Clock.Now()
	_, err := s.core.DB(tenant).Exec(ctx, catalog.NewTables(tenant, catalog.SharedSet).SQL(0, `
		UPDATE {outbox} SET due = $3 WHERE seq = ANY (ARRAY(
		  SELECT o.seq FROM {outbox} b JOIN {outbox} o ON o.type = b.type AND o.id = b.id
		  WHERE b.seq = $1 AND o.due <= $2 FOR UPDATE OF o SKIP LOCKED))`), seq, now, now.Add(pause))
	return err
}

// followUp is one transaction of FollowUp.
type followUp struct {
	ctx     context.Context
	s       *Trees
	tx      pgx.Tx
	tenant  string
	starter Starter // nil: all tasks go in line
	now     time.Time
	byType  map[int32]*typeChanges
	types   map[int32]*catalog.Type
	last    pgx.Batch           // what it writes at its end
	outbox  []records.OutboxRow // what is left to do after it
	await   map[int32]bool      // types that are to be marked as awaited after it

	spawned, spawnedBytes int // children made in it
	stopped               int // children cancelled, redriven or paused in it
	interrupted           int // running children cancelled in it before their turn
	contexts              int // tasks that got the results of their dependencies in it
	joined                int // bytes of results of the tasks joined in it
}

// typeChanges is what a followUp does with tasks of a type.
type typeChanges struct {
	t         *catalog.Type
	tokens    records.Tokens
	settled   []asyncflow.Settlement
	written   []asyncflow.Settlement // that are written already
	made      []*hot.Insertion       // new tasks
	changed   []int64                // tasks with another token row
	advancing []asyncflow.Settlement // the part of settled after which tasks may go on at once
	leases    []*asyncflow.Lease     // of the tasks that do
	voters    voters                 // on tasks that were decided on
}

func (s *Trees) newFollowUp(ctx context.Context, tenant string) *followUp {
	f := &followUp{ctx: ctx, s: s, tenant: tenant, now: s.core.Clock.Now(),
		byType: map[int32]*typeChanges{}, types: map[int32]*catalog.Type{}, await: map[int32]bool{}}
	for _, t := range s.core.Catalog.TypesOf(tenant) {
		f.types[t.Number()] = t
	}
	return f
}

// tryFollowUp handles up to n rows in one transaction. first is the seq of the first one, also if
// that fails; 0: none was taken.
func (s *Trees) tryFollowUp(
	ctx context.Context, tenant string, n int, starter Starter,
) (more bool, first int64, err error) {
	f := s.newFollowUp(ctx, tenant)
	f.starter = starter
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		f.tx = tx
		taken, err := f.take(n)
		if err != nil || len(taken) == 0 {
			return err
		}
		more = len(taken) == n
		first = taken[0].Seq
		if err := f.handle(taken); err != nil {
			return err
		}
		return f.write()
	})
	if f.start(err == nil) && err != nil {
		err = hot.NoteFailure(s.hot, err)
	}
	if err != nil {
		return false, first, err
	}
	f.announce()
	if err := s.await(ctx, tenant, slices.Collect(maps.Keys(f.await))); err != nil {
		return false, first, err // the tasks are looked at again anyway
	}
	now := func(r records.OutboxRow) bool { return r.Due.IsZero() }
	return more || slices.ContainsFunc(f.outbox, now), first, nil
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

// take takes rows that are due.
func (f *followUp) take(n int) (taken []records.OutboxRow, err error) {
	b := &pgx.Batch{}
	b.Queue(`SET LOCAL lock_timeout = '` + followPatience + `'`)
	b.Queue(catalog.NewTables(f.tenant, catalog.SharedSet).SQL(0, takeOutboxSQL), f.now, n).Query(
		func(rows pgx.Rows) error {
			taken, err = pgx.CollectRows(rows, scanOutbox)
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
	ended := map[int32][]int64{}
	looks := map[int32][]int64{}
	submitted := map[int32][]int64{}
	var trees []records.OutboxRow
	for _, r := range taken {
		switch r.Kind {
		case records.OutboxEnded:
			ended[r.Number] = append(ended[r.Number], r.ID)
		case records.OutboxLook:
			looks[r.Number] = append(looks[r.Number], r.ID)
		case records.OutboxSubmitted:
			submitted[r.Number] = append(submitted[r.Number], r.ID)
		default:
			trees = append(trees, r)
		}
	}
	if err := f.followEach(ended, f.followEnded); err != nil {
		return err
	}
	if err := f.followEach(submitted, f.followSubmitted); err != nil {
		return err
	}
	if err := f.followEach(looks, f.followLook); err != nil {
		return err
	}
	return f.followTrees(trees)
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
	byType map[int32][]int64, follow func(t *catalog.Type, ids []int64) error,
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
	f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxLook, Due: due, Number: number,
		ID: id})
}

// changesOf returns what the transaction does with a type.
func (f *followUp) changesOf(t *catalog.Type) *typeChanges {
	if f.byType[t.Number()] == nil {
		f.byType[t.Number()] = &typeChanges{t: t}
	}
	return f.byType[t.Number()]
}

// settle adds a settlement of a task after the deletion of its token row, and the token row that
// follows.
func (f *followUp) settle(t *catalog.Type, s asyncflow.Settlement) {
	changes := f.changesOf(t)
	changes.settled = append(changes.settled, s)
	switch {
	case s.Verdict.Final() != "":
	case s.Verdict.Kind == asyncflow.Advance && f.starter != nil:
		changes.advancing = append(changes.advancing, s)
	default:
		f.line(changes, s)
	}
}

// line puts a task in line after its settlement.
func (f *followUp) line(changes *typeChanges, s asyncflow.Settlement) {
	key := changes.t.LineKeyOf(s.Lease.Options)
	changes.tokens.Add(s.Lease.ID.Number, s.Lease.Seq+1, key, s.Verdict, f.now, f.now)
}

// write writes what the transaction collected, and commits it.
func (f *followUp) write() error {
	numbers := slices.Sorted(maps.Keys(f.byType))
	all := records.Inserts{Node: f.s.core.Config.Node}
	for _, number := range numbers {
		changes := f.byType[number]
		f.startNext(changes)
		all.AddLeases(changes.t, changes.leases, nil)
		records.QueueSettlements(&f.last, changes.t, changes.settled, &changes.tokens, f.now)
		changes.voters.queue(&f.last, changes.t, f.now)
		all.AddTally(changes.t, records.Tally{Submitted: len(changes.made)})
	}
	all.Outbox = f.outbox
	all.Tables = catalog.NewTables(f.tenant, catalog.SharedSet)
	all.Queue(&f.last, f.now)
	return postgres.CommitWith(f.ctx, f.tx, &f.last)
}

// announce announces what the transaction did.
func (f *followUp) announce() {
	for _, changes := range f.byType {
		key := changes.t.Key()
		f.s.core.Wakeups.Announce(key, changes.tokens.Earliest)
		settled := append(changes.settled, changes.written...)
		f.s.core.CountSettled(key, settled...)
		hot.AnnounceFreed(f.ctx, f.s.hot, changes.t, settled)
		for _, settled := range settled {
			f.s.core.Watchers.Tell(key, settled.Lease.ID.Number)
		}
		for _, id := range changes.changed {
			f.s.core.Watchers.Tell(key, id)
		}
	}
}
