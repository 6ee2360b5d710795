package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// EmptyRoll moves ready rows of a sealed roll to the open rolls of their types, and returns how
// many: at most JobBatch. Their order stays. Otherwise tasks that nobody leases, such as the tasks
// of a paused type, would keep the roll from being drained, and all types of the table set from the
// next roll.
func (s *Upkeep) EmptyRoll(
	ctx context.Context,
	set *config.TableSet,
	position int,
) (n int, err error) {
	earliest := map[config.TypeKey]time.Time{}
	err = s.core.Exclusively(ctx, set.Tenant, "empty-roll", func(tx pgx.Tx, _ time.Time) error {
		_, types, err := config.ReadLocations(ctx, tx, set.Tenant, "")
		if err != nil {
			return err
		}
		names := make(map[int32]string, len(types))
		for name, l := range types {
			names[l.Number()] = name
		}
		found, err := tx.Query(ctx, set.Tables.SQL(position, `
			DELETE FROM {ready} WHERE ctid = ANY (ARRAY(
			  SELECT ctid FROM {ready} LIMIT $1 FOR UPDATE SKIP LOCKED))
			RETURNING type, order_time, id, seq, stage, attempt, key, since`), catalog.JobBatch)
		if err != nil {
			return err
		}
		moved := records.Inserts{Tables: set.Tables}
		var number int32
		var row records.ReadyRow
		var since *time.Time
		n = 0
		_, err = pgx.ForEachRow(found, []any{&number, &row.Order, &row.ID, &row.Seq, &row.Stage,
			&row.Attempt, &row.Key, &since}, func() error {
			l := types[names[number]]
			if l.Set() == nil || l.Set().Name == set.Name && l.Set().End <= position {
				return errors.New("a ready row has no open roll")
			}
			row.Since = (*postgres.Moment)(since)
			moved.Ready.Add(records.ReadyKey{RollTables: records.RollTables{Tables: l.Set().Tables,
				Position: l.Set().End}, TypeToken: records.TypeToken{Number: number, Token: row.Token},
				Full: row.Key != nil || since != nil}, row)
			key := config.TypeKey{Tenant: set.Tenant, Type: names[number]}
			if at, ok := earliest[key]; !ok || row.Order.Before(at) {
				earliest[key] = row.Order
			}
			n++
			return nil
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return postgres.ErrIdle
		}
		b := &pgx.Batch{}
		moved.Queue(b, time.Time{})
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		if config.RolledOn(err) { // the next run does it
			return 0, nil
		}
		return 0, postgres.Wrap(err, "EmptyRoll(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	for key, at := range earliest {
		s.core.Wakeups.Announce(key, at)
	}
	return n, nil
}
