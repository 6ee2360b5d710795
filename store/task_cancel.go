package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// cancelTries is how often a cancel follows tasks that change their state meanwhile.
const cancelTries = 10

// Cancel ends a task that is not final, whatever its state, and returns it. It doesn't
// interrupt an attempt under way: the worker learns of the cancel by its next heartbeat, and
// its report no longer counts. A task that was already cancelled is returned as it is; one
// that succeeded or failed is CodeConflict.
func (s *Store) Cancel(
	ctx context.Context,
	tenant string,
	id asyncflow.TaskID,
	reason string,
) (Task, error) {
	t, err := s.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	for range cancelTries {
		var cancelled []asyncflow.Settlement
		err := s.following(ctx, t, func(t *Type) error {
			return s.audited(ctx, t.Tenant, func(tx pgx.Tx) (err error) {
				if t, err = rollsNow(ctx, tx, t); err != nil {
					return err
				}
				cancelled, err = cancelAll(ctx, tx, t, []int64{id.Number}, reason, s.Clock.Now())
				if err == nil && len(cancelled) == 0 {
					return errSame
				}
				return err
			})
		})
		if err != nil && !errors.Is(err, errSame) {
			return Task{}, wrap(err, "Cancel(%q, %s)", tenant, id)
		}
		task, err := s.Task(ctx, tenant, id)
		switch {
		case err != nil:
			return Task{}, err
		case len(cancelled) > 0 || task.Status == asyncflow.StatusCancelled:
			s.freed(ctx, t, cancelled)
			s.watched.tell(t.Key(), id.Number)
			return task, nil
		case task.Status.Final():
			return Task{}, asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be cancelled: it has %s", id, task.Status)
		}
	}
	return Task{}, tooFast()
}

func tooFast() error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable,
		Message: "the task moves on too fast; try again", RetryAfter: time.Second}
}

// cancelAll cancels those of some tasks of one roll that are not final, and returns them. It
// takes their token rows, and looks again for rows that have just moved to another table.
// ids ascend, as in settlements, so that both lock rows in the same order.
func cancelAll(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	ids []int64,
	reason string,
	now time.Time,
) (settled []asyncflow.Settlement, err error) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled, Error: reason}
	if err := lockFanOutsOf(ctx, tx, t, ids); err != nil {
		return nil, err
	}
	var cancelled []int64
	for range cancelTries {
		leases, err := takeAnyTokens(ctx, tx, t, ids)
		if err != nil {
			return nil, err
		}
		for _, l := range leases {
			settled = append(settled,
				asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(t.TaskType, l, o, now)})
			cancelled = append(cancelled, l.ID.Number)
		}
		if ids, err = stillLive(ctx, tx, t, ids, cancelled); err != nil {
			return nil, err
		}
		if len(ids) == 0 && len(settled) == 0 {
			return nil, nil
		}
		if len(ids) == 0 {
			return settled, writeCancelled(ctx, tx, t, settled, now)
		}
	}
	return nil, tooFast()
}

// lockFanOutsOf locks the fan-outs of tasks of one roll before their token rows, as FollowUp does.
func lockFanOutsOf(ctx context.Context, tx pgx.Tx, t *Type, ids []int64) error {
	_, err := tx.Exec(ctx, t.at(0, `SELECT FROM {fan_outs}
		WHERE type = $1 AND id = ANY ($2) AND NOT closed ORDER BY id, seq FOR UPDATE`), t.number, ids)
	return err
}

// writeCancelled writes the settlements of a cancel. No child of a cancelled task begins any more;
// FollowUp cancels them.
func writeCancelled(
	ctx context.Context, tx pgx.Tx, t *Type, settled []asyncflow.Settlement, now time.Time,
) error {
	leases := make([]asyncflow.Lease, len(settled))
	ids := make([]int64, len(settled))
	for i := range settled {
		leases[i], ids[i] = settled[i].Lease, settled[i].Lease.ID.Number
	}
	if err := readOptions(ctx, tx, t, leases); err != nil {
		return err
	}
	for i := range settled {
		settled[i].Lease = leases[i]
	}
	if err := writeSettled(ctx, tx, t, settled, &tokens{}, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, t.at(0, `
		WITH stopped AS (UPDATE {fan_outs} SET stopped = true
		  WHERE type = $1 AND id = ANY ($2) AND NOT closed RETURNING type, id, seq)
		INSERT INTO {outbox} (kind, due, type, id, fan_out)
		SELECT 'stop', $3, type, id, seq FROM stopped`), t.number, ids, now)
	return err
}

// takeAnyTokens deletes the token rows of tasks of one roll from whichever tables they are
// in, and returns them as leases. Tasks that it doesn't find are final, or their rows have
// just moved to another table.
func takeAnyTokens(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	ids []int64,
) (taken []asyncflow.Lease, err error) {
	take := func(position int, sql string, args ...any) error {
		rows, err := tx.Query(ctx, t.at(position, sql), args...)
		if err != nil {
			return err
		}
		more, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
			l.ID.Type = t.Name
			return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.Options.FlowKey)
		})
		taken = append(taken, more...)
		return err
	}
	for _, sql := range []string{takeAnyLeaseSQL, takeAnyWaitSQL} {
		if err := take(0, sql, ids, t.number); err != nil {
			return nil, err
		}
	}
	if len(taken) == len(ids) {
		return taken, nil
	}
	// ready has no index by id: the last journal row or the task has the order_time.
	var orders []time.Time
	if orders, ids, err = readyPlaces(ctx, tx, t, ids); err != nil {
		return nil, err
	}
	for _, p := range t.live() {
		if err := take(p, takeAnyReadySQL, orders, ids, t.number); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// As in takeLeaseSQL, ANY of an array of one keeps the planner from reading a whole table.
const (
	takeAnyLeaseSQL = `
DELETE FROM {lease} k USING unnest($1::bigint[]) AS u (id)
WHERE k.type = $2 AND k.id = ANY (ARRAY[u.id])
RETURNING k.id, k.seq, k.stage, k.attempt, coalesce(k.key, '')`
	takeAnyWaitSQL = `
DELETE FROM {wait} k USING unnest($1::bigint[]) AS u (id)
WHERE k.type = $2 AND k.id = ANY (ARRAY[u.id])
RETURNING k.id, k.seq, k.stage, k.attempt, coalesce(k.key, '')`
	takeAnyReadySQL = `
DELETE FROM {ready} k USING unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id)
WHERE k.type = $3 AND k.order_time = ANY (ARRAY[u.order_time]) AND k.id = ANY (ARRAY[u.id])
RETURNING k.id, k.seq, k.stage, k.attempt, coalesce(k.key, '')`
)

// readyPlaces returns those of some tasks of one roll that are not final, and the order_time
// that each has in ready if it is pending.
func readyPlaces(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	ids []int64,
) (orders []time.Time, live []int64, err error) {
	rows, err := tx.Query(ctx, t.at(asyncflow.TaskID{Number: ids[0]}.Position(), `
		SELECT t.id, coalesce(j.next_time, t.order_time)
		FROM {task} t LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.type = t.type AND j.id = t.id
		  ORDER BY seq DESC LIMIT 1) j ON true
		WHERE t.type = $2 AND t.id = ANY ($1) AND j.final IS NULL ORDER BY t.id`), ids, t.number)
	if err != nil {
		return nil, nil, err
	}
	var id int64
	var order time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &order}, func() error {
		orders, live = append(orders, order), append(live, id)
		return nil
	})
	return orders, live, err
}

// stillLive returns those of some tasks of one roll that are neither taken nor final.
func stillLive(ctx context.Context, tx pgx.Tx, t *Type, ids, taken []int64) ([]int64, error) {
	rest := without(ids, taken)
	if len(rest) == 0 {
		return nil, nil
	}
	_, live, err := readyPlaces(ctx, tx, t, rest)
	return live, err
}

// without returns those of ids that are not in others.
func without(ids, others []int64) []int64 {
	out := make(map[int64]bool, len(others))
	for _, id := range others {
		out[id] = true
	}
	var rest []int64
	for _, id := range ids {
		if !out[id] {
			rest = append(rest, id)
		}
	}
	return rest
}

// takeResting deletes a task's token row from wait or ready. It returns the row as a lease,
// with the reason why it waited and the time since when it had its place; pgx.ErrNoRows when
// it is in neither table.
func takeResting(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	id asyncflow.TaskID,
) (c candidate, err error) {
	c.ID = id
	take := func(position int, sql string, args ...any) error {
		err := tx.QueryRow(ctx, t.at(position, sql), args...).
			Scan(&c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.placed, &c.blocked)
		c.Stage, c.Attempt = t.Place(c.Stage, c.Attempt)
		return err
	}
	err = take(0, `DELETE FROM {wait} WHERE type = $2 AND id = $1
		RETURNING seq, stage, attempt, order_time, coalesce(since, order_time), reason`, id.Number,
		t.number)
	if !errors.Is(err, pgx.ErrNoRows) {
		return c, err
	}
	// ready has no index by id: the last journal row or the task has the order_time.
	var order time.Time
	err = tx.QueryRow(ctx, t.at(id.Position(), `
		SELECT coalesce((SELECT j.next_time FROM {journal} j WHERE j.type = t.type AND j.id = t.id
		  ORDER BY j.seq DESC LIMIT 1), t.order_time)
		FROM {task} t WHERE t.type = $2 AND t.id = $1`), id.Number, t.number).Scan(&order)
	if err != nil {
		return c, err
	}
	err = pgx.ErrNoRows
	for _, p := range t.live() {
		err = take(p, `DELETE FROM {ready} WHERE type = $3 AND order_time = $1 AND id = $2
			RETURNING seq, stage, attempt, order_time, coalesce(since, order_time), ''`, order, id.Number,
			t.number)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	return c, err
}
