package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// DeleteTaskType drops a task type with its tables and endpoints; CodeConflict while it has
// live tasks.
func (s *Store) DeleteTaskType(ctx context.Context, tenant, name string) error {
	err := s.change(ctx, tenant, func(tx pgx.Tx) error {
		if _, err := readTaskType(ctx, tx, tenant, name, "FOR UPDATE"); err != nil {
			return err
		}
		at, err := readPositions(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		names := newTables(tenant, name)
		if err := names.stop(ctx, tx, at); err != nil {
			return err
		}
		stage, err := names.liveStage(ctx, tx, at, nil)
		if err != nil {
			return err
		}
		if stage != "" {
			return asyncflow.Errorf(asyncflow.CodeConflict,
				"task type %s has live tasks (in stage %s): it can be deleted when they are final",
				name, stage)
		}
		return names.retire(ctx, tx, at)
	})
	return wrap(err, "DeleteTaskType(%q, %q)", tenant, name)
}

// retire drops a type's tables and rows, and keeps its last position.
func (t *tables) retire(ctx context.Context, tx pgx.Tx, at positions) error {
	if _, err := tx.Exec(ctx, t.drop(at)); err != nil {
		return err
	}
	if err := t.dropTallies(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx,
		`INSERT INTO `+t.qualify("retired_types")+` (name, end_pos) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET end_pos = excluded.end_pos`, t.name, at.end); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM `+t.qualify("flow_blocks")+` WHERE type = $1`,
		t.name); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM `+t.qualify("task_types")+` WHERE name = $1`, t.name)
	return err
}
