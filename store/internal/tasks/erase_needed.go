package tasks

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// withoutNeeded leaves out, and refuses, tasks that others still need something of: children of
// live tasks, which may read their results, tasks that still start others, and tasks with an end
// that is to be told.
func (e *erasure) withoutNeeded(
	t *config.Type, all []erasable, refused map[int64]error,
) (left []erasable, err error) {
	waiting, err := e.waitingParents(t, all)
	if err != nil {
		return nil, err
	}
	if err = e.addLiveParents(t, all, waiting); err != nil {
		return nil, err
	}
	starting, err := e.starting(t, all)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		id := asyncflow.TaskID{Type: t.Name, Number: one.id}
		parent, child := one.options.ParentWaits(t.Number())
		switch {
		case child && waiting[records.FanOutKeyOf(parent)]:
			refused[one.id] = asyncflow.Errorf(asyncflow.CodeConflict, "task %s is a child of a "+
				"task that is not final and may need its result: try again when that is, or "+
				"cancel it", id)
		case starting[one.id]:
			refused[one.id] = asyncflow.Errorf(asyncflow.CodeConflict, "the tasks that task %s "+
				"starts, or the notification of its end, are still being made: try again in a "+
				"moment", id)
		default:
			left = append(left, one)
		}
	}
	return left, nil
}

// waitingParents returns the fan-outs in which some of the tasks are children, and which aren't
// closed. The others stay closed until the end of the transaction: it doesn't wait for a FollowUp
// that holds one, which may wait for the roll.
func (e *erasure) waitingParents(
	t *config.Type, all []erasable,
) (waiting map[records.FanOutKey]bool, err error) {
	keys := map[records.FanOutKey]bool{}
	for i := range all {
		if parent, ok := all[i].options.ParentWaits(t.Number()); ok {
			keys[records.FanOutKeyOf(parent)] = true
		}
	}
	waiting = map[records.FanOutKey]bool{}
	if len(keys) == 0 {
		return waiting, nil
	}
	list := slices.Collect(maps.Keys(keys))
	args := []any{records.Column(list, func(k *records.FanOutKey) int32 { return k.Number }),
		records.Column(list, func(k *records.FanOutKey) int64 { return k.ID }),
		records.Column(list, func(k *records.FanOutKey) int16 { return k.Seq })}
	const of = ` FROM unnest($1::int[], $2::bigint[], $3::smallint[]) AS u (type, id, seq),
		LATERAL (SELECT * FROM {fan_outs} WHERE type = u.type AND id = u.id AND seq = u.seq OFFSET 0) o`
	each := func(sql string, note func(records.FanOutKey)) error {
		rows, _ := e.tx.Query(e.ctx, t.SQL(0, sql), args...)
		var k records.FanOutKey
		_, err := pgx.ForEachRow(rows, []any{&k.Number, &k.ID, &k.Seq}, func() error {
			note(k)
			return nil
		})
		return err
	}
	err = each(`SELECT o.type, o.id, o.seq`+of, func(k records.FanOutKey) { waiting[k] = true })
	if err != nil {
		return nil, err
	}
	err = each(`SELECT o.type, o.id, o.seq
		FROM unnest($1::int[], $2::bigint[], $3::smallint[]) AS u (type, id, seq), {fan_outs} o
		WHERE o.type = ANY (ARRAY[u.type]) AND o.id BETWEEN u.id AND u.id
		  AND o.seq BETWEEN u.seq AND u.seq AND o.closed
		FOR SHARE OF o SKIP LOCKED`, func(k records.FanOutKey) { delete(waiting, k) })
	return waiting, err
}

// addLiveParents adds the fan-outs of tasks that go on after them: later stages may ask for the
// results of children.
func (e *erasure) addLiveParents(
	t *config.Type, all []erasable, waiting map[records.FanOutKey]bool,
) error {
	known := map[asyncflow.Awaited]bool{}
	for i := range all {
		of, child := all[i].options.ParentWaits(t.Number())
		if !child || known[of] {
			continue
		}
		known[of] = true
		live, err := e.isLive(t, of)
		if err != nil {
			return err
		}
		if live {
			waiting[records.FanOutKeyOf(of)] = true
		}
	}
	return nil
}

// isLive reports whether a parent is there, and not final.
func (e *erasure) isLive(t *config.Type, parent asyncflow.Awaited) (live bool, err error) {
	if parent.Type != t.Number() {
		t, err = e.typeNow(t.Tenant, parent.Type)
	}
	position := asyncflow.TaskID{Number: parent.ID}.Position()
	if err != nil || t == nil || !t.Has(position) {
		return false, err
	}
	err = e.tx.QueryRow(e.ctx, t.SQL(position, `
		SELECT EXISTS (SELECT FROM {task} WHERE type = $1 AND id = $2)
		  AND coalesce((SELECT final FROM {journal} WHERE type = $1 AND id = $2
		    ORDER BY seq DESC LIMIT 1), '') = ''`), t.Number(), parent.ID).Scan(&live)
	return live, err
}

// StartingSQL is written like records.TakeAnyWaitSQL.
const StartingSQL = `
SELECT u.id FROM (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE (SELECT true FROM {spawns} s WHERE s.type = ANY (ARRAY[u.type]) AND s.id BETWEEN u.id AND u.id
    AND s.tasks IS NOT NULL LIMIT 1)
  OR (SELECT true FROM {outbox} o WHERE o.kind = 'final' AND o.type = ANY (ARRAY[u.type])
    AND o.id BETWEEN u.id AND u.id LIMIT 1)`

// starting returns the tasks that still have other tasks to start, and the tasks with a
// notification still to be made, also by an on_final of their type: its maker may have read the
// result.
func (e *erasure) starting(t *config.Type, all []erasable) (map[int64]bool, error) {
	rows, _ := e.tx.Query(e.ctx, t.SQL(0, StartingSQL), t.Number(), idsOf(all))
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	starting := map[int64]bool{}
	for _, id := range ids {
		starting[id] = true
	}
	return starting, err
}
