package tasks

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// prioritize changes the priority of the pending and waiting tasks among some tasks of one roll,
// as Change does for one, and returns how many have it now. It leaves out tasks that wait for their
// children.
func (st *step) prioritize(ctx context.Context, tx pgx.Tx, ids []int64) (int, error) {
	resting, err := lockResting(ctx, tx, st.t, ids)
	if err != nil || len(resting) == 0 {
		return 0, err
	}
	found := restingIDs(resting)
	all, err := readTokenStates(ctx, tx, st.t, found)
	if err != nil {
		return 0, err
	}
	b := &pgx.Batch{}
	var orders []time.Time
	for _, c := range resting {
		state := all[c.ID.Number]
		c.Options = state.options
		ch, same := changeOf(st.t, c, asyncflow.Patch{Priority: st.o.Priority}, state.at, st.now)
		if same {
			continue
		}
		ch.queue(b, st.t, &st.tokens, st.now)
		st.changed = append(st.changed, c.ID.Number)
		orders = append(orders, c.OrderTime)
	}
	if len(st.changed) == 0 {
		return len(resting), nil
	}
	if err := takeLocked(ctx, tx, st.t, st.changed, orders); err != nil {
		return 0, err
	}
	st.tokens.Queue(b, st.t)
	return len(resting), tx.SendBatch(ctx, b).Close()
}

func restingIDs(all []hot.Candidate) []int64 {
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
WHERE k.reason NOT IN ('children', 'signal') AND k.seq <= $3 ORDER BY k.id FOR UPDATE OF k`
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
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (resting []hot.Candidate, err error) {
	lock := func(position int, sql string, args ...any) error {
		rows, _ := tx.Query(ctx, t.SQL(position, sql), args...)
		more, err := pgx.CollectRows(rows,
			func(row pgx.CollectableRow) (c hot.Candidate, err error) {
				c.ID.Type = t.Name
				err = row.Scan(&c.ID.Number, &c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.Placed,
					&c.Blocked)
				c.Stage, c.Attempt = t.Place(c.Stage, c.Attempt)
				return c, err
			})
		resting = append(resting, more...)
		return err
	}
	for range 2 {
		if err := lock(0, lockWaitSQL, ids, t.Number(), records.MaxSeq); err != nil {
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
			if err := lock(p, lockReadySQL, orders, live, t.Number(), records.MaxSeq); err != nil {
				return nil, err
			}
		}
		if ids = records.Without(live, restingIDs(resting)); len(ids) == 0 {
			break
		}
	}
	return resting, nil
}

// readTokenStates is readTokenState of some tasks of one roll.
func readTokenStates(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (map[int64]tokenState, error) {
	rows, _ := tx.Query(ctx, t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), `
		SELECT t.id, coalesce((SELECT max(at) FROM {journal} j WHERE j.type = t.type
		  AND j.id = t.id),
		    t.created_at),
		  coalesce({options}, '{}')
		FROM {task} t WHERE t.type = $2 AND t.id = ANY ($1)`), ids, t.Number())
	all := make(map[int64]tokenState, len(ids))
	var id int64
	var p tokenState
	_, err := pgx.ForEachRow(rows, []any{&id, &p.at, &p.options}, func() error {
		all[id] = p
		p = tokenState{}
		return nil
	})
	return all, err
}

// takeLocked deletes token rows from wait and ready that this transaction has locked.
func takeLocked(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, orders []time.Time,
) error {
	b := &pgx.Batch{}
	b.Queue(t.SQL(0, records.TakeAnyWaitSQL), ids, t.Number())
	for _, p := range t.Live() {
		b.Queue(t.SQL(p, records.TakeAnyReadySQL), orders, ids, t.Number())
	}
	return tx.SendBatch(ctx, b).Close()
}
