package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// EmptyRoll moves ready rows of a sealed roll to the open rolls of their types, and returns how
// many: at most JobBatch. Their order stays. Otherwise tasks that nobody leases, as those of a
// paused type, would keep the roll from being drained, and all types of the table set from the next
// one.
func (s *upkeep) EmptyRoll(ctx context.Context, set *TableSet, position int) (n int, err error) {
	earliest := map[TypeKey]time.Time{}
	err = s.exclusively(ctx, set.Tenant, "empty-roll", func(tx pgx.Tx, _ time.Time) error {
		_, types, err := readLocations(ctx, tx, set.Tenant, "")
		if err != nil {
			return err
		}
		names := make(map[int32]string, len(types))
		for name, l := range types {
			names[l.number] = name
		}
		found, err := tx.Query(ctx, set.tables.at(position, `
			DELETE FROM {ready} WHERE ctid = ANY (ARRAY(
			  SELECT ctid FROM {ready} LIMIT $1 FOR UPDATE SKIP LOCKED))
			RETURNING type, order_time, id, seq, stage, attempt, key, since`), JobBatch)
		if err != nil {
			return err
		}
		moved := rows{tables: set.tables}
		var number int32
		var row readyRow
		var since *time.Time
		n = 0
		_, err = pgx.ForEachRow(found, []any{&number, &row.order, &row.id, &row.seq, &row.stage,
			&row.attempt, &row.key, &since}, func() error {
			l := types[names[number]]
			if l.set == nil || l.set.Name == set.Name && l.set.End <= position {
				return errors.New("a ready row has no open roll")
			}
			row.since = (*moment)(since)
			moved.ready.add(readyKey{rolled{l.set.tables, l.set.End}, typed{number, row.spot},
				row.key != nil || since != nil}, row)
			key := TypeKey{set.Tenant, names[number]}
			if at, ok := earliest[key]; !ok || row.order.Before(at) {
				earliest[key] = row.order
			}
			n++
			return nil
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return errIdle
		}
		b := &pgx.Batch{}
		moved.queue(b, time.Time{})
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		if rolledOn(err) { // the next run does it
			return 0, nil
		}
		return 0, wrap(err, "EmptyRoll(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	for key, at := range earliest {
		s.Wakeups.Announce(key, at)
	}
	return n, nil
}
