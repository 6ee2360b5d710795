package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// prioritize changes the priority of those of some tasks of one roll that are pending or waiting,
// as Change does for one, and returns how many have it now. It leaves out tasks that wait for their
// children.
func (st *step) prioritize(ctx context.Context, tx pgx.Tx, ids []int64) (int, error) {
	resting, err := lockResting(ctx, tx, st.t, ids)
	if err != nil || len(resting) == 0 {
		return 0, err
	}
	found := restingIDs(resting)
	all, err := readAllPlaced(ctx, tx, st.t, found)
	if err != nil {
		return 0, err
	}
	b := &pgx.Batch{}
	var orders []time.Time
	for _, c := range resting {
		placed := all[c.ID.Number]
		c.Options = placed.options
		ch, same := changeOf(st.t, c, asyncflow.Patch{Priority: st.o.Priority}, placed.at, st.now)
		if same {
			continue
		}
		ch.queue(b, st.t, &st.tokens, st.now)
		st.changed, orders = append(st.changed, c.ID.Number), append(orders, c.OrderTime)
	}
	if len(st.changed) == 0 {
		return len(resting), nil
	}
	if err := takeLocked(ctx, tx, st.t, st.changed, orders); err != nil {
		return 0, err
	}
	st.tokens.queue(b, st.t)
	return len(resting), tx.SendBatch(ctx, b).Close()
}

func restingIDs(all []candidate) []int64 {
	ids := make([]int64, len(all))
	for i, c := range all {
		ids[i] = c.ID.Number
	}
	return ids
}

const (
	lockWaitSQL = `
SELECT k.id, k.seq, k.stage, k.attempt, k.order_time, coalesce(k.since, k.order_time), k.reason
FROM unnest($1::bigint[]) AS u (id) JOIN {wait} k ON k.type = $2 AND k.id = ANY (ARRAY[u.id])
WHERE k.reason <> 'children' AND k.seq <= $3 ORDER BY k.id FOR UPDATE OF k`
	lockReadySQL = `
SELECT k.id, k.seq, k.stage, k.attempt, k.order_time, coalesce(k.since, k.order_time), ''
FROM unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id) JOIN {ready} k
  ON k.type = $3 AND k.order_time = ANY (ARRAY[u.order_time]) AND k.id = ANY (ARRAY[u.id])
WHERE k.seq <= $4 ORDER BY k.id FOR UPDATE OF k`
)

// lockResting locks the token rows of tasks of one roll in wait and ready, and returns them. It
// looks twice, as a row may just have moved from the one to the other. All rows of wait come first,
// as in a cancel, so that the two don't deadlock.
func lockResting(
	ctx context.Context, tx pgx.Tx, t *Type, ids []int64,
) (resting []candidate, err error) {
	lock := func(position int, sql string, args ...any) error {
		rows, err := tx.Query(ctx, t.at(position, sql), args...)
		if err != nil {
			return err
		}
		more, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
			c.ID.Type = t.Name
			err = row.Scan(&c.ID.Number, &c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.placed,
				&c.blocked)
			c.Stage, c.Attempt = t.Place(c.Stage, c.Attempt)
			return c, err
		})
		resting = append(resting, more...)
		return err
	}
	for range 2 {
		if err := lock(0, lockWaitSQL, ids, t.number, maxSeq); err != nil {
			return nil, err
		}
		if ids = without(ids, restingIDs(resting)); len(ids) == 0 {
			break
		}
		orders, live, err := readyPlaces(ctx, tx, t, ids)
		if err != nil || len(live) == 0 {
			return resting, err
		}
		for _, p := range t.live() {
			if err := lock(p, lockReadySQL, orders, live, t.number, maxSeq); err != nil {
				return nil, err
			}
		}
		if ids = without(live, restingIDs(resting)); len(ids) == 0 {
			break
		}
	}
	return resting, nil
}

// readAllPlaced is readPlaced of some tasks of one roll.
func readAllPlaced(
	ctx context.Context, tx pgx.Tx, t *Type, ids []int64,
) (map[int64]placed, error) {
	rows, err := tx.Query(ctx, t.at(asyncflow.TaskID{Number: ids[0]}.Position(), `
		SELECT t.id, coalesce((SELECT max(at) FROM {journal} j WHERE j.type = t.type AND j.id = t.id),
		    t.created_at),
		  coalesce({options}, '{}')
		FROM {task} t WHERE t.type = $2 AND t.id = ANY ($1)`), ids, t.number)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]placed, len(ids))
	var id int64
	var p placed
	_, err = pgx.ForEachRow(rows, []any{&id, &p.at, &p.options}, func() error {
		all[id], p = p, placed{}
		return nil
	})
	return all, err
}

// takeLocked deletes token rows from wait and ready that this transaction has locked.
func takeLocked(
	ctx context.Context, tx pgx.Tx, t *Type, ids []int64, orders []time.Time,
) error {
	b := &pgx.Batch{}
	b.Queue(t.at(0, takeAnyWaitSQL), ids, t.number)
	for _, p := range t.live() {
		b.Queue(t.at(p, takeAnyReadySQL), orders, ids, t.number)
	}
	return tx.SendBatch(ctx, b).Close()
}
