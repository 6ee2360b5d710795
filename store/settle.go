package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

const (
	settleBatch  = 500
	settleLinger = 3 * time.Millisecond
	// reportLinger is that of workers' reports: somebody waits for those.
	reportLinger = 1500 * time.Microsecond
	// settlePatience bounds the tries to write a batch; after it the leases run
	// out and are rescued.
	settlePatience = time.Minute
	// reportPatience is how long a worker's report may wait for the batches before it. Its worker
	// is told to report again by then.
	reportPatience = 30 * time.Second
)

// Settled is the result of a settlement.
type Settled struct {
	// Stale reports whether the lease no longer stood and another outcome is written
	// (another output is another outcome): nothing was changed.
	Stale bool
	// Written is the outcome in the journal for the lease's seq when it is stale;
	// "" when there is none (yet).
	Written asyncflow.OutcomeKind
	Err     error
}

type settleItem struct {
	*asyncflow.Settlement
	done func(*asyncflow.Settlement, Settled)
	held bool // its task has a slot of this node, which done gives back
	// until is from when on nobody waits for it, so that it isn't begun any more; zero: never.
	until time.Time
}

func (item settleItem) size() int { return len(item.Outcome.Output) }

// Settle ends a lease as its worker reports: its row is deleted if it still stands, and the
// journal row and what follows from the verdict are written, in one transaction with
// others. done is called with the result, once; it must not block.
func (s *Store) Settle(tenant string, settlement asyncflow.Settlement, done func(Settled)) {
	s.settleUntil(time.Now().Add(reportPatience), tenant, settlement, done)
}

func (s *Store) settleUntil(until time.Time, tenant string, settlement asyncflow.Settlement, done func(Settled)) {
	key := acceptedKeyOf(tenant, settlement.Lease.ID, settlement.Lease.Seq)
	accepted := s.accepted.forget(key)
	s.reports.add(key.TypeKey, settleItem{&settlement, func(_ *asyncflow.Settlement, r Settled) {
		if r.Err != nil && accepted != nil { // the worker may report again
			s.extends.add(key.TypeKey, accepted.extension())
		}
		done(r)
	}, false, until})
}

// SettleAll is Settle for tasks of one type whose attempts have ended on this node: done is
// called for each of them, and gives its slot back. The settlements are left to the store.
func (s *Store) SettleAll(tenant string, settlements []asyncflow.Settlement, done func(*asyncflow.Settlement, Settled)) {
	if len(settlements) == 0 {
		return
	}
	items := make([]settleItem, len(settlements))
	for i := range settlements {
		items[i] = settleItem{&settlements[i], done, true, time.Time{}}
	}
	s.settles.add(TypeKey{tenant, settlements[0].Lease.ID.Type}, items...)
}

func (s *Store) writeSettlements(ctx context.Context, key TypeKey, items []settleItem) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	items = refuseLate(items)
	slices.SortFunc(items, func(a, b settleItem) int { return cmp.Compare(a.Lease.ID.Number, b.Lease.ID.Number) })
	for batch, rest := onePerTask(items); len(batch) > 0; batch, rest = onePerTask(rest) {
		results := make([]Settled, len(batch))
		s.settleBatch(ctx, key, batch, results)
		for i := range batch {
			batch[i].done(batch[i].Settlement, results[i])
		}
	}
}

// refuseLate refuses the reports for which nobody waits any more, and returns the other items.
// While the database stands still, workers report again and again: without this each report would
// be kept, with its output, until it has had its turn.
func refuseLate(items []settleItem) []settleItem {
	now := time.Now()
	return slices.DeleteFunc(items, func(item settleItem) bool {
		late := !item.until.IsZero() && now.After(item.until)
		if late {
			item.done(item.Settlement, Settled{Err: &asyncflow.Error{Code: asyncflow.CodeUnavailable,
				RetryAfter: time.Second, Message: "the database doesn't answer; report again"}})
		}
		return late
	})
}

// onePerTask divides items, sorted by task, into a batch with one of each task and
// the rest: a worker's report that came twice. A lease ends once; the second report
// has to see how.
func onePerTask(items []settleItem) (batch, rest []settleItem) {
	batch = items[:0]
	for _, item := range items {
		if n := len(batch); n > 0 && batch[n-1].Lease.ID.Number == item.Lease.ID.Number {
			rest = append(rest, item)
		} else {
			batch = append(batch, item)
		}
	}
	return batch, rest
}

// settleBatch settles a batch. When Postgres refuses its data, the batch is split
// until only the offender fails.
func (s *Store) settleBatch(ctx context.Context, key TypeKey, items []settleItem, results []Settled) {
	var ended map[int64]bool
	var ts *tokens
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err == nil {
		err = s.persist(ctx, "settle", key, func() error {
			return s.following(ctx, t, func(now *Type) (err error) {
				t = now
				ended, ts, err = s.trySettle(ctx, t, items)
				return err
			})
		})
	}
	switch {
	case err == nil:
		s.announceSettled(t, items, ended, ts)
		s.explainStale(ctx, t, items, ended, results)
	case isDataError(err) && len(items) > 1:
		half := len(items) / 2
		s.settleBatch(ctx, key, items[:half], results[:half])
		s.settleBatch(ctx, key, items[half:], results[half:])
	default:
		for i := range results {
			results[i].Err = wrap(err, "Settle(%q, %q)", key.Tenant, key.Type)
		}
	}
}

// trySettle is one transaction of two round trips. It returns the tasks whose
// leases it ended, and the token rows it wrote.
func (s *Store) trySettle(ctx context.Context, t *Type, items []settleItem) (map[int64]bool, *tokens, error) {
	conn, err := s.hot(t.Key()).Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	ended := make(map[int64]bool, len(items))
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	ids := make([]int64, len(items))
	seqs := make([]int16, len(items))
	for i, item := range items {
		ids[i], seqs[i] = item.Lease.ID.Number, int16(item.Lease.Seq)
	}
	b.Queue(t.tables.at(0, takeLeaseSQL), ids, seqs).Query(func(rows pgx.Rows) error { return collectIDs(rows, ended) })
	if err := conn.Send(ctx, b); err != nil {
		return nil, nil, err
	}
	now := s.Clock.Now()
	ts := &tokens{}
	var rows journal
	var counts tally
	items = slices.DeleteFunc(slices.Clone(items), func(item settleItem) bool { return !ended[item.Lease.ID.Number] })
	h := s.handOn(t, items)
	for _, item := range items {
		rows.add(item.Settlement)
		counts.count(item.Settlement)
		if item.Verdict.Final() == "" && !h.hasSettled(item) {
			ts.add(item.Lease.ID.Number, item.Lease.Seq+1, t.FlowKeyOf(item.Lease.Options), item.Verdict,
				t.placedAt(&item.Lease, item.Verdict, now), now)
		}
	}
	b = &pgx.Batch{}
	rows.queue(b, t, now)
	ts.queue(b, t)
	if h != nil {
		s.queueLeases(b, t, h.leases, nil, h.now)
	}
	if t.Flow != nil {
		queueBlocks(b, t, settledOf(items, ended))
	}
	counts.queue(b, t, now)
	b.Queue("COMMIT")
	err = conn.Send(ctx, b)
	conn.Release()
	h.end(err)
	return ended, ts, err
}

// announceSettled tells dispatchers of what is ready, and those who follow a task
// that it has moved on.
func (s *Store) announceSettled(t *Type, items []settleItem, ended map[int64]bool, ts *tokens) {
	s.Wakeups.Announce(t.Key(), ts.earliest)
	meter := s.cfg.Meter.Type(t.Key())
	for i, item := range items {
		if ended[item.Lease.ID.Number] {
			meter.Settled(items[i].Settlement)
			s.watched.tell(t.Key(), item.Lease.ID.Number)
		}
	}
	if t.Guarded(s.Clock.Now()) {
		s.freed(t, settledOf(items, ended))
	}
}

func settledOf(items []settleItem, ended map[int64]bool) []asyncflow.Settlement {
	var settled []asyncflow.Settlement
	for _, item := range items {
		if ended[item.Lease.ID.Number] {
			settled = append(settled, *item.Settlement)
		}
	}
	return settled
}

func (s *Store) announceOne(key TypeKey, item settleItem) {
	s.watched.tell(key, item.Lease.ID.Number)
	if item.Verdict.Final() == "" {
		s.Wakeups.Announce(key, item.Verdict.OrderTime)
	}
}

// explainStale finds out about settlements whose lease was gone. When the journal
// has the same outcome for that seq, it is this very settlement whose COMMIT
// answer was lost, or the same report again. Another output is another outcome.
func (s *Store) explainStale(ctx context.Context, t *Type, items []settleItem, ended map[int64]bool, results []Settled) {
	if len(ended) == len(items) {
		return
	}
	confirmed := false // all that is written by now is durable
	for i, item := range items {
		if ended[item.Lease.ID.Number] {
			continue
		}
		written, same, err := s.writtenAs(ctx, t, item.Lease.ID, item.Lease.Seq, item.Outcome)
		if err == nil && same && !confirmed {
			err = s.persist(ctx, "confirm", t.Key(), func() error { return confirm(ctx, s.of(t.Tenant)) })
			confirmed = err == nil
		}
		results[i] = Settled{Stale: !same, Written: written, Err: wrap(err, "Settle(%s)", item.Lease.ID)}
		if same { // the news may not have gone out
			s.announceOne(t.Key(), item)
		}
	}
}

// Written returns the outcome in the journal for a task's seq, or "". It is durable then.
func (s *Store) Written(ctx context.Context, t *Type, id asyncflow.TaskID, seq int) (asyncflow.OutcomeKind, error) {
	kind, err := s.written(ctx, t, id, seq)
	if err == nil && kind != "" {
		err = wrap(confirm(ctx, s.of(t.Tenant)), "Written(%s, %d)", id, seq)
	}
	return kind, err
}

// written is Written of what may still wait for a synchronous standby.
func (s *Store) written(ctx context.Context, t *Type, id asyncflow.TaskID, seq int) (asyncflow.OutcomeKind, error) {
	var kind asyncflow.OutcomeKind
	err := s.of(t.Tenant).QueryRow(ctx, t.tables.at(id.Position(), `SELECT outcome FROM {journal} WHERE id = $1 AND seq = $2`),
		id.Number, seq).Scan(&kind)
	if err == pgx.ErrNoRows {
		return "", nil
	}
	return kind, wrap(err, "Written(%s, %d)", id, seq)
}

// sameOutcome compares a journal row with an outcome ($3) and its output ($4, NULL for
// none): what was done is the same only with the same output, byte for byte.
const sameOutcome = `outcome = $3 AND (outcome <> 'done' OR output IS NOT DISTINCT FROM $4::text)`

// WrittenAs is Written, and also reports whether the journal's outcome is o: it has the
// same kind and, if the stage was done, the same output, byte for byte.
func (s *Store) WrittenAs(ctx context.Context, t *Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome) (kind asyncflow.OutcomeKind, same bool, err error) {
	kind, same, err = s.writtenAs(ctx, t, id, seq, o)
	if err == nil && kind != "" {
		err = wrap(confirm(ctx, s.of(t.Tenant)), "WrittenAs(%s, %d)", id, seq)
	}
	return kind, same, err
}

// writtenAs is WrittenAs of what may still wait for a synchronous standby. Postgres compares
// the outputs, so the journal's doesn't travel.
func (s *Store) writtenAs(ctx context.Context, t *Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome) (kind asyncflow.OutcomeKind, same bool, err error) {
	err = s.of(t.Tenant).QueryRow(ctx, t.tables.at(id.Position(), `SELECT outcome, `+sameOutcome+` FROM {journal} WHERE id = $1 AND seq = $2`),
		id.Number, seq, string(o.Kind), orNull(string(o.Output))).Scan(&kind, &same)
	if err == pgx.ErrNoRows {
		return "", false, nil
	}
	return kind, same, wrap(err, "WrittenAs(%s, %d)", id, seq)
}

// persist runs one transaction until it commits or its data is refused, for as
// long as ctx lasts. do must be safe to repeat after a commit whose answer was
// lost.
func (s *Store) persist(ctx context.Context, what string, key TypeKey, do func() error) error {
	return s.persistUntil(ctx, what, key, func(err error) bool { return isDataError(err) || asyncflow.CodeOf(err) == asyncflow.CodeNotFound }, do)
}

// persistUntil is persist with another notion of errors that are final.
func (s *Store) persistUntil(ctx context.Context, what string, key TypeKey, final func(error) bool, do func() error) error {
	err := do()
	for pause := 10 * time.Millisecond; err != nil && !final(err) && !isRefused(err) && ctx.Err() == nil; pause *= 2 {
		s.log.Warn("trying again", "what", what, "tenant", key.Tenant, "type", key.Type, "error", err)
		sleep(ctx, min(pause, time.Second))
		err = do()
	}
	return err
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func collectIDs(rows pgx.Rows, into map[int64]bool) error {
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		into[id] = true
		return nil
	})
	return err
}
