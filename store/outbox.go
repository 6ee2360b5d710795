package store

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
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// The end of a task may move others: tasks that depend on it, or its parent. The transaction that
// ends it only writes a row in outbox. FollowUp does the rest in a transaction of its own, which
// deletes the row. The node that wrote the row calls it at once, and a background job later, so
// that nothing is lost with a node.

const (
	// followUpPause is how long a row rests that can't be handled, with the others about its task,
	// and lockedPause if it is because of a lock: then this node tries again at once. It is longer
	// than two rounds that meet a lock, so that rows of other tasks go on between them.
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
func (s *trees) FollowUp(
	ctx context.Context, tenant string, starter Starter,
) (more bool, err error) {
	more, _, err = s.tryFollowUp(ctx, tenant, s.chunks.rows, starter)
	if err == nil || ctx.Err() != nil {
		return more, wrap(err, "FollowUp(%q)", tenant)
	}
	if rolledOn(err) {
		_ = s.Catalog.RefreshTenant(ctx, tenant)
	}
	_, bad, err := s.tryFollowUp(ctx, tenant, 1, starter) // so that one row doesn't hold up others
	if err == nil {
		return true, nil
	}
	if bad == 0 {
		return false, wrap(err, "FollowUp(%q)", tenant)
	}
	if sqlState(err) != pgerrcode.LockNotAvailable {
		late := s.rest(ctx, tenant, bad, followUpPause)
		return late == nil, wrap(errors.Join(err, late), "FollowUp(%q)", tenant)
	}
	if err = s.rest(ctx, tenant, bad, lockedPause); err == nil { // others go on
		time.AfterFunc(lockedPause, func() { s.tellFollowUp(tenant) })
	}
	return err == nil, wrap(err, "FollowUp(%q)", tenant)
}

// rest leaves a row to later, with the others about its task.
func (s *trees) rest(ctx context.Context, tenant string, seq int64, pause time.Duration) error {
	now := s.Clock.Now()
	_, err := s.of(tenant).Exec(ctx, newTables(tenant, sharedSet).at(0, `
		UPDATE {outbox} SET due = $3 WHERE seq = ANY (ARRAY(
		  SELECT o.seq FROM {outbox} b JOIN {outbox} o ON o.type = b.type AND o.id = b.id
		  WHERE b.seq = $1 AND o.due <= $2 FOR UPDATE OF o SKIP LOCKED))`), seq, now, now.Add(pause))
	return err
}

// followUp is one transaction of FollowUp.
type followUp struct {
	ctx     context.Context
	s       *trees
	tx      pgx.Tx
	tenant  string
	starter Starter // nil: all tasks go in line
	now     time.Time
	byType  map[int32]*followed
	types   map[int32]*Type
	last    pgx.Batch      // what it writes at its end
	outbox  []outboxRow    // what is left to do after it
	await   map[int32]bool // types that are to be marked as awaited after it

	spawned, spawnedBytes int // children made in it
	stopped               int // children cancelled, redriven or paused in it
	interrupted           int // running children cancelled in it before their turn
	contexts              int // tasks that got the results of their dependencies in it
	joined                int // bytes of results of the tasks joined in it
}

// followed is what a followUp does with tasks of a type.
type followed struct {
	t       *Type
	tokens  tokens
	settled []asyncflow.Settlement
	written []asyncflow.Settlement // that are written already
	made    []*Insertion           // new tasks
	changed []int64                // tasks with another token row
	onward  []asyncflow.Settlement // those of settled after which tasks may go on at once
	leases  []*asyncflow.Lease     // of those that do
	voters  voters                 // on tasks that were decided on
}

func (s *trees) newFollowUp(ctx context.Context, tenant string) *followUp {
	f := &followUp{ctx: ctx, s: s, tenant: tenant, now: s.Clock.Now(), byType: map[int32]*followed{},
		types: map[int32]*Type{}, await: map[int32]bool{}}
	for _, t := range s.Catalog.TypesOf(tenant) {
		f.types[t.number] = t
	}
	return f
}

// tryFollowUp handles up to n rows in one transaction. first is the seq of the first one, also if
// that fails; 0: none was taken.
func (s *trees) tryFollowUp(
	ctx context.Context, tenant string, n int, starter Starter,
) (more bool, first int64, err error) {
	f := s.newFollowUp(ctx, tenant)
	f.starter = starter
	err = pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
		f.tx = tx
		taken, err := f.take(n)
		if err != nil || len(taken) == 0 {
			return err
		}
		more, first = len(taken) == n, taken[0].seq
		if err := f.handle(taken); err != nil {
			return err
		}
		return f.write()
	})
	if f.start(err == nil) && err != nil {
		err = s.doubt(err)
	}
	if err != nil {
		return false, first, err
	}
	f.announce()
	if err := s.await(ctx, tenant, slices.Collect(maps.Keys(f.await))); err != nil {
		return false, first, err // the tasks are looked at again anyway
	}
	now := func(r outboxRow) bool { return r.due.IsZero() }
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
  ` + fanOutColumns + `
  WHERE type = r.type AND id = r.id AND seq = r.fan_out FOR UPDATE SKIP LOCKED) o ON true`

// take takes rows that are due.
func (f *followUp) take(n int) (taken []outboxRow, err error) {
	b := &pgx.Batch{}
	b.Queue(`SET LOCAL lock_timeout = '` + followPatience + `'`)
	b.Queue(newTables(f.tenant, sharedSet).at(0, takeOutboxSQL), f.now, n).Query(
		func(rows pgx.Rows) error {
			taken, err = pgx.CollectRows(rows, scanOutbox)
			return err
		})
	err = f.tx.SendBatch(f.ctx, b).Close()
	return taken, err
}

func scanOutbox(row pgx.CollectableRow) (r outboxRow, err error) {
	into := []any{&r.seq, &r.kind, &r.number, &r.id, &r.fanOut, &r.ended.succeeded, &r.ended.failed,
		&r.ended.cancelled, &r.at}
	var o fanOut
	columns := o.columns()
	if row.RawValues()[len(into)] == nil { // there is none
		clear(columns)
	} else {
		r.locked = &o
	}
	return r, row.Scan(append(into, columns...)...)
}

// handle handles rows. Ids ascend, so that transactions lock rows in one order.
func (f *followUp) handle(taken []outboxRow) error {
	slices.SortFunc(taken, func(a, b outboxRow) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.id, b.id),
			cmp.Compare(a.fanOut, b.fanOut))
	})
	taken = f.putBack(taken)
	ended, looks, submitted := map[int32][]int64{}, map[int32][]int64{}, map[int32][]int64{}
	var trees []outboxRow
	for _, r := range taken {
		switch r.kind {
		case outboxEnded:
			ended[r.number] = append(ended[r.number], r.id)
		case outboxLook:
			looks[r.number] = append(looks[r.number], r.id)
		case outboxSubmitted:
			submitted[r.number] = append(submitted[r.number], r.id)
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

// putBack leaves rows about fan-outs that others have locked to a later transaction, and returns
// the rest. Without a rest it returns all: only a transaction that has locked nothing may wait.
func (f *followUp) putBack(taken []outboxRow) (rest []outboxRow) {
	var locked []outboxRow
	for _, r := range taken {
		if r.fanOut != 0 && r.locked == nil {
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
	byType map[int32][]int64, follow func(t *Type, ids []int64) error,
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

// look has the edges of a task looked at in a later transaction.
func (f *followUp) look(number int32, id int64) { f.lookAt(number, id, time.Time{}) }

// lookAt has the edges of a task looked at from a time on.
func (f *followUp) lookAt(number int32, id int64, due time.Time) {
	f.outbox = append(f.outbox, outboxRow{kind: outboxLook, due: due, number: number, id: id})
}

// of returns what the transaction does with a type.
func (f *followUp) of(t *Type) *followed {
	if f.byType[t.number] == nil {
		f.byType[t.number] = &followed{t: t}
	}
	return f.byType[t.number]
}

// settle adds a settlement of a task whose token row was deleted, and the token row that follows.
func (f *followUp) settle(t *Type, s asyncflow.Settlement) {
	of := f.of(t)
	of.settled = append(of.settled, s)
	switch {
	case s.Verdict.Final() != "":
	case s.Verdict.Kind == asyncflow.Advance && f.starter != nil:
		of.onward = append(of.onward, s)
	default:
		f.line(of, s)
	}
}

// line puts a task in line after its settlement.
func (f *followUp) line(of *followed, s asyncflow.Settlement) {
	of.tokens.add(s.Lease.ID.Number, s.Lease.Seq+1, of.t.LineKeyOf(s.Lease.Options), s.Verdict, f.now,
		f.now)
}

// write writes what the transaction has collected, and commits it.
func (f *followUp) write() error {
	numbers := slices.Sorted(maps.Keys(f.byType))
	all := rows{node: f.s.cfg.Node}
	for _, number := range numbers {
		of := f.byType[number]
		f.goOn(of)
		all.addLeases(of.t, of.leases, nil)
		queueSettlements(&f.last, of.t, of.settled, &of.tokens, f.now)
		of.voters.queue(&f.last, of.t, f.now)
		all.addTally(of.t, tally{submitted: len(of.made)})
	}
	all.outbox, all.tables = f.outbox, newTables(f.tenant, sharedSet)
	all.queue(&f.last, f.now)
	return postgres.CommitWith(f.ctx, f.tx, &f.last)
}

// announce announces what the transaction did.
func (f *followUp) announce() {
	for _, of := range f.byType {
		key := of.t.Key()
		f.s.Wakeups.Announce(key, of.tokens.earliest)
		settled := append(of.settled, of.written...)
		f.s.countSettled(key, settled...)
		f.s.freed(f.ctx, of.t, settled)
		for _, settled := range settled {
			f.s.watched.tell(key, settled.Lease.ID.Number)
		}
		for _, id := range of.changed {
			f.s.watched.tell(key, id)
		}
	}
}
