package tasks

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// These statements are written like records.TakeAnyWaitSQL.
const (
	NotificationsSQL = `
SELECT n.target, n.task
FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {notifications} WHERE type = $1 AND id BETWEEN u.id AND u.id ORDER BY id) n`
	EventsSQL = `
SELECT t.id, t.context
FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $1 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t`
)

// eraseNotifications erases what notifications say of the tasks. Notifications on their way go
// on, with what remains.
func (e *erasure) eraseNotifications(t *config.Type, all []erasable) error {
	rows, _ := e.tx.Query(e.ctx, t.SQL(0, NotificationsSQL), t.Number(), idsOf(all))
	byTarget := map[int32][]int64{}
	var number int32
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&number, &id}, func() error {
		byTarget[number] = append(byTarget[number], id)
		return nil
	})
	if err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(byTarget)) {
		target, err := e.typeNow(t.Tenant, number)
		if err != nil {
			return err
		}
		if target == nil { // it was deleted, and its tasks with it
			continue
		}
		byRoll := config.ByPosition(byTarget[number])
		for _, position := range slices.Sorted(maps.Keys(byRoll)) {
			if !target.Has(position) {
				continue
			}
			if err := e.eraseNotificationsOf(target, position, byRoll[position]); err != nil {
				return err
			}
		}
	}
	return nil
}

// typeNow returns the type of a number with its present tables; nil: there is none.
func (e *erasure) typeNow(tenant string, number int32) (*config.Type, error) {
	var name string
	err := e.tx.QueryRow(e.ctx, config.NewTables(tenant, config.SharedSet).SQL(0,
		`SELECT name FROM {types} WHERE number = $1`), number).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := e.s.core.Catalog.Type(tenant, name)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // this node doesn't know it yet
		return nil, config.ErrElsewhere
	}
	if err != nil {
		return nil, err
	}
	return config.RollsNow(e.ctx, e.tx, t)
}

// eraseNotificationsOf erases notifications of one roll.
func (e *erasure) eraseNotificationsOf(target *config.Type, position int, ids []int64) error {
	err := config.LockRoll(e.ctx, e.tx, target.SetAt(position), position, "UPDATE")
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	over, refused, err := e.finals(target, ids)
	if err != nil {
		return err
	}
	if len(over) > 0 {
		if err := e.write(target, position, over); err != nil {
			return err
		}
	}
	var live []int64
	for id, why := range refused {
		if asyncflow.CodeOf(why) == asyncflow.CodeConflict {
			live = append(live, id)
		}
	}
	return e.shortenEvents(target, position, live)
}

// shortenEvents leaves of the events of notifications on their way what is still in an erased task.
func (e *erasure) shortenEvents(target *config.Type, position int, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	rows, _ := e.tx.Query(e.ctx, target.SQL(position, EventsSQL), target.Number(), ids)
	b := &pgx.Batch{}
	var id int64
	var doc string
	_, err := pgx.ForEachRow(rows, []any{&id, &doc}, func() error {
		var event asyncflow.FinalEvent
		if err := json.Unmarshal([]byte(doc), &event); err != nil {
			return err
		}
		event.Data = event.Data.Erase()
		b.Queue(target.SQL(position, `UPDATE {task} SET context = $3
			WHERE type = $1 AND id = $2`), target.Number(), id, string(event.Document()))
		return nil
	})
	if err != nil {
		return err
	}
	b.Queue(target.SQL(position, EraseJournalSQL), target.Number(), ids)
	if err := e.tx.SendBatch(e.ctx, b).Close(); err != nil {
		return err
	}
	return target.SetAt(position).Tables.VacuumSoon(e.ctx, e.tx, position, false)
}
