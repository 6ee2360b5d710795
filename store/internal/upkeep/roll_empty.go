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
	ctx context.Context, set *config.TableSet, position int,
) (n int, err error) {
	var moved *readyMove
	err = s.core.Exclusively(ctx, set.Tenant, "empty-roll", func(tx pgx.Tx, _ time.Time) error {
		moved, err = moveReady(ctx, tx, set, position)
		return err
	})
	if config.RolledOn(err) { // the next run does it
		return 0, nil
	}
	if err != nil {
		return 0, postgres.Wrap(err, "EmptyRoll(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	if moved == nil { // another node empties rolls
		return 0, nil
	}
	for key, at := range moved.earliest {
		s.core.Wakeups.Announce(key, at)
	}
	return moved.n, nil
}

// readyMove are ready rows that move from a roll to the open rolls of their types.
type readyMove struct {
	set      *config.TableSet
	position int
	types    map[string]config.Location
	names    map[int32]string // of the types, by number

	n        int
	rows     records.Inserts
	earliest map[config.TypeKey]time.Time // the least order_time of each type
}

// moveReady moves up to JobBatch ready rows of a roll. Without any it returns ErrIdle.
func moveReady(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int,
) (*readyMove, error) {
	_, types, err := config.ReadLocations(ctx, tx, set.Tenant, "")
	if err != nil {
		return nil, err
	}
	m := &readyMove{set: set, position: position, types: types,
		names: make(map[int32]string, len(types)), rows: records.Inserts{Tables: set.Tables},
		earliest: map[config.TypeKey]time.Time{}}
	for name, l := range types {
		m.names[l.Number()] = name
	}
	if err := m.take(ctx, tx); err != nil {
		return m, err
	}
	if m.n == 0 {
		return m, postgres.ErrIdle
	}
	b := &pgx.Batch{}
	m.rows.Queue(b, time.Time{})
	return m, tx.SendBatch(ctx, b).Close()
}

// take deletes the rows from the roll.
func (m *readyMove) take(ctx context.Context, tx pgx.Tx) error {
	found, err := tx.Query(ctx, m.set.Tables.SQL(m.position, `
		DELETE FROM {ready} WHERE ctid = ANY (ARRAY(
		  SELECT ctid FROM {ready} LIMIT $1 FOR UPDATE SKIP LOCKED))
		RETURNING type, order_time, id, seq, stage, attempt, key, since`), catalog.JobBatch)
	if err != nil {
		return err
	}
	var number int32
	var row records.ReadyRow
	var since *time.Time
	_, err = pgx.ForEachRow(found, []any{&number, &row.Order, &row.ID, &row.Seq, &row.Stage,
		&row.Attempt, &row.Key, &since}, func() error {
		row.Since = (*postgres.Moment)(since)
		return m.add(number, row)
	})
	return err
}

// add adds a row of a type to the open roll of the type.
func (m *readyMove) add(number int32, row records.ReadyRow) error {
	name := m.names[number]
	l := m.types[name]
	if l.Set() == nil || l.Set().Name == m.set.Name && l.Set().End <= m.position {
		return errors.New("a ready row has no open roll")
	}
	m.rows.Ready.Add(records.ReadyKey{
		RollTables: records.RollTables{Tables: l.Set().Tables, Position: l.Set().End},
		TypeToken:  records.TypeToken{Number: number, Token: row.Token},
		Keyed:      row.Key != nil || row.Since != nil}, row)
	key := config.TypeKey{Tenant: m.set.Tenant, Type: name}
	if at, ok := m.earliest[key]; !ok || row.Order.Before(at) {
		m.earliest[key] = row.Order
	}
	m.n++
	return nil
}
