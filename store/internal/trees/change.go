package trees

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Change is what follows from a patch of a task whose token row is in `wait` or `ready`.
type Change struct {
	hot.Candidate
	verdict asyncflow.Verdict
	options *string           // the new ones; nil: the same as before
	context []byte            // the new one of its stage; nil: the same as before
	by      string            // who made it, as an endpoint; "": unknown
	from    time.Time         // since when the task has its place
	expiry  *asyncflow.Expiry // when it expires now; nil: as before
}

// ChangeOf returns what follows from a patch, and reports whether that is the same as before. at is
// when the token row was written.
func ChangeOf(
	t *config.Type, c hot.Candidate, p asyncflow.Patch, at, now time.Time,
) (ch Change, same bool) {
	l := c.Lease
	v := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: l.Stage, Attempt: l.Attempt,
		OrderTime: p.Order(t.TaskType, l, at, now), Reason: asyncflow.WaitDelay}
	if c.Blocked == asyncflow.WaitChildren { // it is in no line
		v.OrderTime = l.OrderTime
	}
	placed := now
	if p.RunAt.IsZero() {
		placed = c.Placed
	}
	others := c.Blocked.ForOthers()
	if (p.RunAt.IsZero() || others) && c.Blocked != "" { // it still waits for the same reason
		v.Reason = c.Blocked
		if c.Blocked == asyncflow.WaitEndpoint || others {
			v.Kind = asyncflow.Park
		}
	}
	options := p.Options(l.Options)
	options.Lifetime = p.Lifetime(t.TaskType, l, now)
	v.Claim = options.Claim
	after := changedOptions(l.Options, options)
	same = after == nil && v.OrderTime.Equal(l.OrderTime) && p.Context == nil
	ch = Change{c, v, after, p.Context, p.Endpoint(), placed, nil}
	if p.ChangesLifetime() && (t.HasLifetime(&options) || t.HasLifetime(&l.Options)) {
		due := placed
		if v.OrderTime.After(due) {
			due = v.OrderTime
		}
		e := options.Lifetime.End()
		if c.Blocked != asyncflow.WaitChildren { // or else its stage has begun
			e = t.Expiry(&options, l.Stage, due, true)
		}
		ch.expiry = &e
	}
	return ch, same
}

// changedOptions returns new options as the journal has them; nil: they are the same as before.
func changedOptions(before, after asyncflow.Options) *string {
	from := orNone(hot.OptionsText(before))
	to := orNone(hot.OptionsText(after))
	if from == to {
		return nil
	}
	return &to
}

// orNone returns the text of options, also of none: the journal has them after a change.
func orNone(text *string) string {
	if text == nil {
		return "{}"
	}
	return *text
}

// QueueChanges adds the journal rows of changes of tasks of one roll to a batch, and the token rows
// to ts. A journal row keeps the error of the previous attempt, and what its code is made of: the
// status, or a word before the text. The children of tasks that wait for them are left to FollowUp.
func QueueChanges(
	b *pgx.Batch, t *config.Type, all []Change, ts *records.Tokens, now time.Time,
) {
	queueChanged(b, t, all, now)
	for i := range all {
		ch := &all[i]
		l := &ch.Lease
		ts.Add(l.ID.Number, l.Seq+1, t.LineKeyOf(l.Options), ch.verdict, ch.from, now)
		if ch.expiry != nil {
			records.QueueExpiry(b, t, l.ID, *ch.expiry)
		}
		if ch.Blocked != asyncflow.WaitChildren {
			continue
		}
		b.Queue(t.SQL(0, `
			WITH moved AS (UPDATE {fan_outs} SET waits = $4::smallint
			  WHERE type = $1 AND id = $2 AND waits = $3::smallint AND NOT closed
			  RETURNING type, id, seq)
			INSERT INTO {outbox} (kind, due, type, id, fan_out)
			SELECT 'priority', $5, type, id, seq FROM moved`), t.Number(), l.ID.Number, l.Seq,
			l.Seq+1, now)
	}
}

// InsertChangedSQL inserts the journal rows of changes. The LIMIT leaves the planner one plan, a
// walk down the index for each row before. Without it, it reads the journals of all tasks of the
// type.
const InsertChangedSQL = `
INSERT INTO {journal} (id, seq, at, stage, attempt, outcome, next_time, options, output,
  endpoint, error, status, type)
SELECT u.id, u.seq, $7, u.stage, u.attempt, 'changed', u.next_time, u.options::json,
  u.output, nullif(u.endpoint, ''),
  CASE WHEN p.outcome = 'lost' THEN 'lost: ' ELSE '' END || p.error, p.status, $8
FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::smallint[], $5::timestamptz[],
  $6::text[], $9::text[], $10::text[])
  AS u (id, seq, stage, attempt, next_time, options, output, endpoint)
LEFT JOIN LATERAL (SELECT j.outcome, j.error, j.status FROM {journal} j
  WHERE j.type = $8 AND j.id = u.id AND j.seq = u.seq - 1 AND j.error IS NOT NULL
  LIMIT 1) p ON true`

// queueChanged adds the journal rows of changes to a batch.
func queueChanged(b *pgx.Batch, t *config.Type, all []Change, now time.Time) {
	b.Queue(t.SQL(all[0].ID.Position(), InsertChangedSQL),
		records.Column(all, func(c *Change) int64 { return c.ID.Number }),
		records.Column(all, func(c *Change) int16 { return int16(c.Seq) }),
		records.Column(all, func(c *Change) string { return c.Stage }),
		records.Column(all, func(c *Change) int16 { return int16(c.Attempt) }),
		records.Column(all, func(c *Change) time.Time { return c.verdict.OrderTime }),
		records.Column(all, func(c *Change) *string { return c.options }), now, t.Number(),
		records.Column(all, func(c *Change) []byte { return c.context }),
		records.Column(all, func(c *Change) string { return c.by }))
}

// BulkChange changes the priority or the time of tasks.
type BulkChange struct {
	asyncflow.Patch
	// Since leaves tasks alone that were changed later; zero: none are.
	Since time.Time
	// Parents also changes tasks that wait for their children. The caller has locked their
	// fan-outs, and then taken the time of the change: children that are made before it get it.
	Parents bool
}

// ChangeAll changes the pending and waiting tasks among some tasks of one roll, as a change does
// for one, and returns how many are as they should be now, and which it changed. It leaves out
// tasks that wait for a signal.
func ChangeAll(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, p BulkChange,
	ts *records.Tokens, now time.Time,
) (found int, changed []int64, err error) {
	resting, err := lockResting(ctx, tx, t, ids, p.Parents)
	if err != nil || len(resting) == 0 {
		return 0, nil, err
	}
	all, err := readTokenStates(ctx, tx, t, restingIDs(resting))
	if err != nil {
		return 0, nil, err
	}
	var changes []Change
	for _, c := range resting {
		state := all[c.ID.Number]
		c.Options = state.options
		if !p.Since.IsZero() && state.changed.After(p.Since) {
			continue
		}
		ch, same := ChangeOf(t, c, p.Patch, state.at, now)
		if same {
			continue
		}
		changes = append(changes, ch)
		changed = append(changed, c.ID.Number)
	}
	if len(changed) == 0 {
		return len(resting), nil, nil
	}
	b := &pgx.Batch{}
	queueTakes(b, t, changes)
	QueueChanges(b, t, changes, ts, now)
	return len(resting), changed, tx.SendBatch(ctx, b).Close()
}

func restingIDs(all []hot.Candidate) []int64 {
	ids := make([]int64, len(all))
	for i, c := range all {
		ids[i] = c.ID.Number
	}
	return ids
}

// The ORDER BY and the LIMIT within these statements leave the planner one plan: a walk down the
// index for each id. Otherwise it reads all rows of the type, as it believes that they are few.
const (
	LockWaitSQL = `
SELECT k.id, k.seq, k.stage, k.attempt, k.order_time, coalesce(k.since, k.order_time), k.reason
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {wait} WHERE type = $2 AND id BETWEEN u.id AND u.id
    AND reason <> 'signal' AND ($4 OR reason <> 'children') AND seq <= $3
  ORDER BY id LIMIT 1 FOR UPDATE) k`
	LockReadySQL = `
SELECT k.id, k.seq, k.stage, k.attempt, k.order_time, coalesce(k.since, k.order_time), ''
FROM unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id), LATERAL (
  SELECT * FROM {ready} WHERE type = $3 AND order_time = u.order_time
    AND id BETWEEN u.id AND u.id AND seq <= $4
  ORDER BY id LIMIT 1 FOR UPDATE) k`

	// These two delete rows that the transaction has locked.
	TakeLockedWaitSQL = `
DELETE FROM {wait} WHERE ctid = ANY (ARRAY(
  SELECT k.ctid FROM unnest($1::bigint[]) AS u (id), LATERAL (
    SELECT ctid FROM {wait} WHERE type = $2 AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1) k))`
	TakeLockedReadySQL = `
DELETE FROM {ready} WHERE ctid = ANY (ARRAY(
  SELECT k.ctid FROM unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id), LATERAL (
    SELECT ctid FROM {ready} WHERE type = $3 AND order_time = u.order_time
      AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1) k))`
)

// lockResting locks the token rows of tasks of one roll in wait and ready, and returns them. It
// looks twice, as a row may just have moved from the one to the other. All rows of wait come first,
// as in a cancel, so that the two don't deadlock.
func lockResting(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, parents bool,
) (resting []hot.Candidate, err error) {
	lock := func(position int, sql string, args ...any) error {
		rows, _ := tx.Query(ctx, t.SQL(position, sql), args...)
		more, err := pgx.CollectRows(rows,
			func(row pgx.CollectableRow) (c hot.Candidate, err error) {
				c.ID.Type = t.Name
				err = row.Scan(&c.ID.Number, &c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.Placed,
					&c.Blocked)
				c.Stage, c.Attempt = t.Mapped(c.Stage, c.Attempt)
				return c, err
			})
		resting = append(resting, more...)
		return err
	}
	ids = slices.Sorted(slices.Values(ids)) // the rows are locked in this order
	for range 2 {
		if err := lock(0, LockWaitSQL, ids, t.Number(), records.MaxSeq, parents); err != nil {
			return nil, err
		}
		if ids = records.Without(ids, restingIDs(resting)); len(ids) == 0 {
			break
		}
		orders, live, err := records.ReadyPlaces(ctx, tx, t, ids)
		if err != nil || len(live) == 0 {
			return resting, err
		}
		for _, p := range t.Live() {
			if err := lock(p, LockReadySQL, orders, live, t.Number(), records.MaxSeq); err != nil {
				return nil, err
			}
		}
		if ids = records.Without(live, restingIDs(resting)); len(ids) == 0 {
			break
		}
	}
	return resting, nil
}

// tokenState says since when a task's token row has had its place, and when its options were
// changed last, and has its options.
type tokenState struct {
	at, changed time.Time
	options     asyncflow.Options
}

// TokenStatesSQL has the form of records.TakeAnyWaitSQL.
const TokenStatesSQL = `
SELECT t.id, coalesce(j.at, t.created_at), coalesce(j.changed, t.created_at),
  coalesce({options}, '{}')
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t,
  LATERAL (SELECT max(at) AS at,
      max(at) FILTER (WHERE outcome = 'changed' AND options IS NOT NULL) AS changed
    FROM {journal} WHERE type = t.type AND id = t.id) j`

// readTokenStates reads the states of tasks of one roll.
func readTokenStates(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (map[int64]tokenState, error) {
	rows, _ := tx.Query(ctx, t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), TokenStatesSQL),
		ids, t.Number())
	all := make(map[int64]tokenState, len(ids))
	var id int64
	var p tokenState
	_, err := pgx.ForEachRow(rows, []any{&id, &p.at, &p.changed, &p.options}, func() error {
		all[id] = p
		p = tokenState{}
		return nil
	})
	return all, err
}

// queueTakes adds deletes of token rows that this transaction has locked to a batch.
func queueTakes(b *pgx.Batch, t *config.Type, changes []Change) {
	var ready []int64
	var orders []time.Time
	for i := range changes {
		if c := &changes[i].Candidate; c.Blocked == "" { // as all rows of ready
			ready = append(ready, c.ID.Number)
			orders = append(orders, c.OrderTime)
		}
	}
	all := records.Column(changes, func(c *Change) int64 { return c.ID.Number })
	b.Queue(t.SQL(0, TakeLockedWaitSQL), all, t.Number())
	if len(ready) == 0 {
		return
	}
	for _, p := range t.Live() {
		b.Queue(t.SQL(p, TakeLockedReadySQL), orders, ready, t.Number())
	}
}
