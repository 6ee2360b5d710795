package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// DeleteTaskType drops a task type with its endpoints and its finished tasks; CodeConflict while it
// has live tasks. Tables of its own are dropped; its rows in shared tables are deleted later, in
// small steps: see DeleteRows.
func (s *Store) DeleteTaskType(ctx context.Context, tenant, name string) error {
	err := s.change(ctx, tenant, func(tx pgx.Tx) error {
		if err := lockSets(ctx, tx, tenant, name); err != nil { // first, as moves of the type do
			return err
		}
		if _, err := readTaskType(ctx, tx, tenant, name, "FOR UPDATE"); err != nil {
			return err
		}
		t, err := stopType(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		stage, err := t.liveStage(ctx, tx, nil)
		if err != nil {
			return err
		}
		if stage != "" {
			return asyncflow.Errorf(asyncflow.CodeConflict,
				"task type %s has live tasks (in stage %s): it can be deleted when they are final",
				name, stage)
		}
		return t.retire(ctx, tx)
	})
	return wrap(err, "DeleteTaskType(%q, %q)", tenant, name)
}

// retire drops a type's own tables and its rows, and keeps its last position.
func (t *Type) retire(ctx context.Context, tx pgx.Tx) error {
	if err := t.dropTallies(ctx, tx); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(t.at(0, `DELETE FROM {blocks} WHERE type = $1`), t.Name)
	b.Queue(t.at(0, `DELETE FROM {types} WHERE name = $1`), t.Name)
	shared := false
	for _, set := range []*TableSet{t.set, t.earlier} {
		switch {
		case set == nil:
		case set.Shared():
			shared = true
		default:
			for p := set.First; p <= set.End; p++ {
				b.Queue(`DROP TABLE IF EXISTS ` + set.tables.task(p) + `, ` + set.tables.journal(p) + `, ` +
					set.tables.ready(p))
			}
			b.Queue(t.at(0, `DELETE FROM {sets} WHERE name = $1`), set.Name)
			b.Queue(t.at(0, `INSERT INTO {retired} AS r (name, end_pos) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET end_pos = greatest(r.end_pos, excluded.end_pos)`),
				t.Name, set.End)
		}
	}
	if shared {
		b.Queue(t.at(0, `INSERT INTO {deleted} (number, name) VALUES ($1, $2)`), t.number, t.Name)
	}
	return tx.SendBatch(ctx, b).Close()
}

// HasDeletedTypes reports whether rows of deleted types may be left in a tenant's shared tables.
func (s *Store) HasDeletedTypes(ctx context.Context, tenant string) (has bool, err error) {
	err = s.of(tenant).QueryRow(ctx,
		newTables(tenant, sharedSet).at(0, `SELECT EXISTS (SELECT FROM {deleted})`)).Scan(&has)
	return has, wrap(err, "HasDeletedTypes(%q)", tenant)
}

// DeleteRows deletes rows of deleted types from a tenant's shared tables, at most JobBatch of each
// table, and returns how many.
func (s *Store) DeleteRows(ctx context.Context, tenant string) (n int, err error) {
	set := s.Catalog.SetsOf(tenant)[sharedSet]
	if set == nil {
		return 0, nil
	}
	err = s.exclusively(ctx, tenant, "delete-rows", func(tx pgx.Tx, _ time.Time) error {
		var number int32
		err := tx.QueryRow(ctx, set.tables.at(0, `SELECT number FROM {deleted} ORDER BY number LIMIT 1`)).
			Scan(&number)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		for p := set.First; p <= set.End && n == 0; p++ {
			if n, err = deleteRows(ctx, tx, set, p, number); err != nil {
				return err
			}
		}
		if n == 0 {
			_, err = tx.Exec(ctx, set.tables.at(0, `DELETE FROM {deleted} WHERE number = $1`), number)
		}
		return err
	})
	if rolledOn(err) { // the next run does it
		return 0, nil
	}
	return n, wrap(err, "DeleteRows(%q)", tenant)
}

// deleteRows deletes rows of a deleted type from the tables of one roll.
func deleteRows(ctx context.Context, tx pgx.Tx, set *TableSet, position int, number int32) (
	n int, err error,
) {
	for _, table := range []string{set.tables.task(position), set.tables.journal(position)} {
		tag, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM `+table+` WHERE type = $1 LIMIT $2))`, number, JobBatch)
		if err != nil {
			return n, err
		}
		n += int(tag.RowsAffected())
	}
	return n, nil
}
