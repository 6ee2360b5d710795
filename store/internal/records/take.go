package records

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// TakeAnyTokens deletes the token rows of tasks of one roll from whichever tables they are in, and
// returns them as leases. Tasks that it doesn't find are final, or their rows just moved to another
// table.
func TakeAnyTokens(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) ([]asyncflow.Lease, error) {
	return takeTokens(ctx, tx, t, ids, TakeAnyLeaseSQL, TakeAnyWaitSQL)
}

// takeTokens takes token rows by some statements, and then from ready.
func takeTokens(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, statements ...string,
) (taken []asyncflow.Lease, err error) {
	take := func(position int, sql string, args ...any) error {
		b := &pgx.Batch{}
		QueueTake(b, func(rows pgx.Rows) error {
			more, err := pgx.CollectRows(rows,
				func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
					l.ID.Type = t.Name
					return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt,
						&l.Options.FlowKey, &l.Node, &l.Worker)
				})
			taken = append(taken, more...)
			return err
		}, t.SQL(position, sql), args...)
		return tx.SendBatch(ctx, b).Close()
	}
	for _, sql := range statements {
		if err := take(0, sql, ids, t.Number()); err != nil {
			return nil, err
		}
	}
	if len(taken) == len(ids) {
		return taken, nil
	}
	// ready has no index by id: the last journal row or the task has the order_time.
	var orders []time.Time
	if orders, ids, err = ReadyPlaces(ctx, tx, t, ids); err != nil {
		return nil, err
	}
	for _, p := range t.Live() {
		if err := take(p, TakeAnyReadySQL, orders, ids, t.Number()); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// QueueTake adds a statement that locks rows and deletes them by their ctid. It runs twice: the
// first run locks a row that another transaction is just updating, but deletes only the version
// that it saw. The second run sees the version that is locked now.
func QueueTake(b *pgx.Batch, read func(rows pgx.Rows) error, sql string, args ...any) {
	for range 2 {
		b.Queue(sql, args...).Query(read)
	}
}

// Statements of this form leave the planner a walk down the index for each task, in the order of
// the index, and a scan by ctid. QueueTake runs them. The columns of the index before the id have
// an equality, so that the walk ends where a row is missing. See ADR 56.
const (
	TakeAnyLeaseSQL = `
DELETE FROM {lease} k WHERE ctid = ANY (ARRAY(
  SELECT l.t FROM unnest($1::bigint[]) AS u (id), LATERAL (
    SELECT ctid AS t FROM {lease} WHERE type = $2 AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1 FOR UPDATE) l))
RETURNING k.id, k.seq, k.stage, k.attempt, coalesce(k.key, ''), node, coalesce(worker, '')`
	TakeAnyWaitSQL = `
DELETE FROM {wait} k WHERE ctid = ANY (ARRAY(
  SELECT w.t FROM unnest($1::bigint[]) AS u (id), LATERAL (
    SELECT ctid AS t FROM {wait} WHERE type = $2 AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1 FOR UPDATE) w))
RETURNING k.id, k.seq, k.stage, k.attempt, coalesce(k.key, ''), '', ''`
	TakeAnyReadySQL = `
DELETE FROM {ready} k WHERE ctid = ANY (ARRAY(
  SELECT r.t FROM unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id), LATERAL (
    SELECT ctid AS t FROM {ready} WHERE type = $3
      AND order_time = u.order_time AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1 FOR UPDATE) r))
RETURNING k.id, k.seq, k.stage, k.attempt, coalesce(k.key, ''), '', ''`
)

// readyPlacesSQL leaves the planner one plan, a walk down an index for each id, in their order.
// With id = ANY it may read all tasks of the type.
const readyPlacesSQL = `
SELECT t.id, coalesce(j.next_time, t.order_time)
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t
LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.type = t.type AND j.id = t.id
  ORDER BY seq DESC LIMIT 1) j ON true
WHERE j.final IS NULL`

// ReadyPlaces returns the given tasks of one roll, except final ones, and the order_time that each
// has in ready if it is pending.
func ReadyPlaces(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (orders []time.Time, live []int64, err error) {
	rows, _ := tx.Query(ctx, t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), readyPlacesSQL),
		slices.Sorted(slices.Values(ids)), t.Number())
	var id int64
	var order time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &order}, func() error {
		orders = append(orders, order)
		live = append(live, id)
		return nil
	})
	return orders, live, err
}

// StillLive returns the given tasks of one roll that are neither taken nor final.
func StillLive(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids, taken []int64,
) ([]int64, error) {
	rest := Without(ids, taken)
	if len(rest) == 0 {
		return nil, nil
	}
	_, live, err := ReadyPlaces(ctx, tx, t, rest)
	return live, err
}

// Without returns the ids that are not in others.
func Without(ids, others []int64) []int64 {
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

// CancelTries is how often a cancel follows tasks that change their state meanwhile.
const CancelTries = 10
