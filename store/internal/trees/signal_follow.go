package trees

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// A signal and the wait for it are committed by two transactions, and each leaves a row in outbox.
// FollowUp looks for the other one after the commit of each. So whichever of the two is committed
// last finds both:
//
//  1. It locks the task's row in wait. Another FollowUp that looks for the same task waits.
//  2. It takes the decision of a link or, without one, the oldest signal of that name that the task
//     has. Statements see all signals that were committed before, also while it waited for the
//     lock.
//  3. In the same transaction it deletes the row in wait and the signal, and settles the stage.
//
// Without a signal, a task whose time is over goes on in the same way: so a signal that was
// committed before counts.

// signalGroup is how many tasks one round trip looks for signals for: each may have MaxContext
// bytes of data.
const signalGroup = 16

// signalFollowUp is what a FollowUp does about signals and the waits for them.
type signalFollowUp struct{ *followUp }

// followKeyed finds the tasks for signals that were sent to a key when no task had it. It locks no
// signal: a task's row in wait comes first.
func (f signalFollowUp) followKeyed(t *config.Type, seqs []int64) error {
	first := asyncflow.NewTaskID("", t.First, 0).Number
	rows, err := f.tx.Query(f.ctx, t.SQL(0, `
		SELECT id FROM (SELECT coalesce(s.task,
		    (SELECT k.id FROM {keys} k WHERE k.type = $3 AND k.key = s.key AND k.id >= $4),
		    (SELECT p.id FROM {past_keys} p
		      WHERE p.type = $1 AND p.key = s.key AND p.id >= $4)) AS id
		  FROM {signals} s WHERE s.seq = ANY ($2)) k
		WHERE id IS NOT NULL`), t.Number(), seqs, t.Name, first)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	return f.followSignals(t, ids)
}

// followSignalWaits looks at all tasks of a type that wait for signals, JobBatch in a transaction,
// from an id on.
func (f signalFollowUp) followSignalWaits(t *config.Type, after []int64) error {
	var ids []int64
	b := &pgx.Batch{}
	b.Queue(t.SQL(0, `SELECT id FROM {wait} WHERE type = $1 AND id > $2 AND reason = 'signal'
		ORDER BY type, id LIMIT $3`), t.Number(), slices.Min(after), catalog.JobBatch).Query(
		func(rows pgx.Rows) (err error) {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	err := f.tx.SendBatch(f.ctx, b).Close()
	for _, id := range ids {
		f.outbox = append(f.outbox,
			records.OutboxRow{Kind: records.OutboxSignal, Number: t.Number(), ID: id})
	}
	if len(ids) == catalog.JobBatch {
		f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxSignalWaits,
			Number: t.Number(), ID: ids[len(ids)-1]})
	}
	return err
}

// followSignals moves on the tasks that wait for a signal and have one, or whose time is over. It
// leaves tasks that need too much memory at once to a later transaction.
func (f signalFollowUp) followSignals(t *config.Type, ids []int64) error {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for group := range slices.Chunk(ids, signalGroup) {
		if f.joined > joinBytes {
			for _, id := range group {
				f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxSignal,
					Number: t.Number(), ID: id})
			}
			continue
		}
		if err := f.followSignalGroup(t, group); err != nil {
			return err
		}
	}
	return nil
}

// signalWait is a task that waits for a signal.
type signalWait struct {
	asyncflow.Lease
	key    string // its flow key
	wait   *asyncflow.Wait
	since  *time.Time
	until  *time.Time
	signal *keptSignal // that it takes; nil: there is none
}

// keptSignal is a signal that a task takes.
type keptSignal struct {
	seq  int64
	data *string
}

func (f signalFollowUp) followSignalGroup(t *config.Type, ids []int64) error {
	waits, err := f.lockSignalWaits(t, ids)
	if err != nil || len(waits) == 0 {
		return err
	}
	if err := f.readSignals(t, waits); err != nil {
		return err
	}
	var over []*signalWait
	for _, w := range waits {
		if w.wait == nil || w.signal != nil || w.until == nil || !w.until.After(f.now) {
			over = append(over, w)
		}
	}
	if len(over) == 0 {
		return nil
	}
	if err := f.endSignalWaits(t, over); err != nil {
		return err
	}
	for _, w := range over {
		if err := f.passWait(t, w); err != nil {
			return err
		}
	}
	return nil
}

// LockSignalWaitsSQL locks the token rows of tasks that wait for signals, in the order of the ids.
// The ORDER BY and the LIMIT leave the planner one plan: a walk down the index for each id.
const LockSignalWaitsSQL = `
SELECT w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, ''), s.since, s.until
FROM unnest($2::bigint[]) AS u (id)
CROSS JOIN LATERAL (
  SELECT * FROM {wait} WHERE type = $1 AND id BETWEEN u.id AND u.id AND reason = 'signal'
  ORDER BY id LIMIT 1 FOR UPDATE) w
LEFT JOIN LATERAL (SELECT s.since, s.until FROM {signal_waits} s
  WHERE s.type = w.type AND s.id = w.id OFFSET 0) s ON true`

// These statements are about what tasks waited for. For their form see records.TakeAnyWaitSQL.
const (
	LockWaitsOverSQL = `
SELECT FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT FROM {signal_waits} WHERE type = $1 AND id BETWEEN u.id AND u.id
  ORDER BY id LIMIT 1 FOR UPDATE) s`
	DeleteSignalWaitsSQL = `
DELETE FROM {signal_waits} s
USING (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE s.type = ANY (ARRAY[u.type]) AND s.id BETWEEN u.id AND u.id`
	DeleteWaitsOverSQL = DeleteSignalWaitsSQL + `
  AND (SELECT w.reason = 'signal' FROM (SELECT reason FROM {wait}
    WHERE type = $1 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) w) IS NOT TRUE`
)

// lockSignalWaits locks the rows of tasks that wait for signals. It forgets what other tasks waited
// for.
func (f signalFollowUp) lockSignalWaits(
	t *config.Type, ids []int64,
) (all []*signalWait, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	rows, err := f.tx.Query(f.ctx, t.SQL(0, LockSignalWaitsSQL), t.Number(), ids)
	if err != nil {
		return nil, err
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*signalWait, error) {
		w := &signalWait{}
		w.ID.Type = t.Name
		return w, row.Scan(&w.ID.Number, &w.Seq, &w.Stage, &w.Attempt, &w.OrderTime, &w.key,
			&w.since, &w.until)
	})
	if err != nil || len(all) == len(ids) {
		return all, err
	}
	gone := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		return slices.ContainsFunc(all, func(w *signalWait) bool { return w.ID.Number == id })
	})
	b := &pgx.Batch{}
	// A task may come to its next wait just now: only a statement that begins with the lock of its
	// row sees that.
	b.Queue(t.SQL(0, LockWaitsOverSQL), t.Number(), gone)
	b.Queue(t.SQL(0, DeleteWaitsOverSQL), t.Number(), gone)
	return all, f.tx.SendBatch(f.ctx, b).Close()
}

// readSignals reads what tasks wait for now, and the signals that they take. Signals that were sent
// to a task's key before there was a task belong to it from now on.
func (f signalFollowUp) readSignals(t *config.Type, waits []*signalWait) error {
	leases := make([]asyncflow.Lease, len(waits))
	for i, w := range waits {
		leases[i].ID = w.ID
	}
	if err := records.ReadOptions(f.ctx, f.tx, t, leases); err != nil {
		return err
	}
	byID := map[int64]*signalWait{}
	var stand []*signalWait
	var ids []int64
	var keys, names []string
	var alive []time.Time // when a signal must have been kept at least
	for i, w := range waits {
		w.Options = leases[i].Options
		w.CreatedAt = leases[i].CreatedAt
		w.Stage, w.Attempt = t.Mapped(w.Stage, w.Attempt)
		w.wait = t.WaitOf(w.Stage)
		if w.wait == nil { // the stage has another mode by now
			continue
		}
		byID[w.ID.Number] = w
		stand = append(stand, w)
		ids = append(ids, w.ID.Number)
		names = append(names, w.wait.Signal)
		keys = append(keys, w.Options.Key)
		at := f.now
		if w.since != nil && w.since.Before(at) {
			at = *w.since
		}
		alive = append(alive, at)
	}
	links, err := f.linkKeys(t, stand, alive)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(t.SQL(0, KeyedSignalsSQL), t.Number(), ids, keys, alive)
	b.Queue(t.SQL(0, NextSignalsSQL), t.Number(), ids, names, alive, links).Query(
		func(rows pgx.Rows) error {
			var id, seq int64
			var data *string
			_, err := pgx.ForEachRow(rows, []any{&id, &seq, &data}, func() error {
				byID[id].signal = &keptSignal{seq, data}
				return nil
			})
			return err
		})
	return f.tx.SendBatch(f.ctx, b).Close()
}

// These statements compare one value at a time, not an array. So every plan reads only signals of
// that task or key, also one that was made when there were few.
const (
	// KeyedSignalsSQL gives the signals that were sent to keys to the tasks that have them.
	KeyedSignalsSQL = `
UPDATE {signals} s SET task = k.id FROM (
  SELECT u.id, k.seq FROM unnest($2::bigint[], $3::text[], $4::timestamptz[])
    AS u (id, key, alive), LATERAL (
    SELECT k.seq FROM {signals} k WHERE k.type = $1 AND k.key = u.key AND k.task IS NULL
      AND NOT k.taken AND k.kept_until > u.alive FOR UPDATE) k
  WHERE u.key <> '') k
WHERE s.seq = ANY (ARRAY[k.seq])`

	// NextSignalsSQL locks the oldest signal of each task that linkKeys leaves it.
	NextSignalsSQL = `
SELECT u.id, s.seq, s.data FROM unnest($2::bigint[], $3::text[], $4::timestamptz[], $5::text[])
  AS u (id, name, alive, link), LATERAL (
  SELECT k.seq, k.data FROM {signals} k
  WHERE k.type = $1 AND k.task = u.id AND k.name = u.name AND NOT k.taken
    AND k.kept_until > u.alive
    AND (u.link = '' OR k.idempotency_key = u.link
      OR u.link = 'link/' AND starts_with(k.idempotency_key, 'link/') IS NOT TRUE)
  ORDER BY k.seq LIMIT 1 FOR UPDATE) s`
)

// endSignalWaits deletes the rows of waits that are over, and the signals that they take.
func (f signalFollowUp) endSignalWaits(t *config.Type, over []*signalWait) error {
	ids := records.Column(over, func(w **signalWait) int64 { return (*w).ID.Number })
	var seqs []int64
	for _, w := range over {
		if w.signal != nil {
			seqs = append(seqs, w.signal.seq)
		}
	}
	b := &pgx.Batch{}
	records.QueueTake(b, func(pgx.Rows) error { return nil }, t.SQL(0, records.TakeAnyWaitSQL), ids,
		t.Number())
	b.Queue(t.SQL(0, DeleteSignalWaitsSQL), t.Number(), ids)
	b.Queue(t.SQL(0, `DELETE FROM {signals} WHERE seq = ANY ($1) AND idempotency_key IS NULL`),
		seqs)
	b.Queue(t.SQL(0, `UPDATE {signals} SET taken = true, data = NULL WHERE seq = ANY ($1)`), seqs)
	return f.tx.SendBatch(f.ctx, b).Close()
}

// passWait settles a task after its wait.
func (f signalFollowUp) passWait(t *config.Type, w *signalWait) (err error) {
	var o asyncflow.Outcome
	switch {
	case w.wait == nil:
		v := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: w.Stage, Attempt: w.Attempt,
			OrderTime: w.OrderTime}
		changes := f.changesOf(t)
		changes.tokens.Add(w.ID.Number, w.Seq, w.key, v, f.now, f.now)
		changes.changed = append(changes.changed, w.ID.Number)
		return nil
	case w.signal == nil:
		o = w.wait.TimedOut()
	case w.signal.data == nil:
		o = asyncflow.Signalled(w.wait.Signal, nil)
	default:
		o = asyncflow.Signalled(w.wait.Signal, json.RawMessage(*w.signal.data))
	}
	f.joined += len(o.Output)
	if t.NeedsPath(w.Lease, o) {
		if o.Path, err = hot.Passed(f.ctx, f.tx, t, w.Lease); err != nil {
			return err
		}
	}
	f.settle(t, asyncflow.Settlement{Lease: w.Lease, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, w.Lease, o, f.now)})
	return nil
}
