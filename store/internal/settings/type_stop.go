package settings

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// stopTries is how often stop tries to get its locks.
const stopTries = 20

// stopType keeps the token rows of a type in their tables until the transaction ends, and returns
// the type as it is then. Submits, leases and settlements of all types with the same tables wait.
// No roll of its sets opens meanwhile, since that would get tasks from other nodes.
func stopType(ctx context.Context, tx pgx.Tx, tenant, name string) (*config.Type, error) {
	if err := lockSets(ctx, tx, tenant, name); err != nil {
		return nil, err
	}
	at, err := config.ReadLocation(ctx, tx, tenant, name)
	if err != nil {
		return nil, err
	}
	t := &config.Type{Tenant: tenant, Location: at}
	t.Name = name
	return t, lockTables(ctx, tx, t)
}

// lockSets locks the rows of all sets that a type may have.
func lockSets(ctx context.Context, tx pgx.Tx, tenant, name string) error {
	_, err := tx.Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `SELECT FROM {sets}
		WHERE name IN ('', $1) ORDER BY name FOR NO KEY UPDATE`), name)
	return err
}

// lockTables gets the locks of stopType. It doesn't wait in line for them, but tries again after a
// pause.
func lockTables(ctx context.Context, tx pgx.Tx, t *config.Type) error {
	all := config.TokenTables(t)
	for _, p := range t.Live() {
		all = append(all, t.SetAt(p).Tables.Task(p))
	}
	var err error
	for range stopTries {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, config.LockPatience); err != nil {
				return err
			}
			return config.LockTables(ctx, tx, t.Tenant, all, "SHARE ROW EXCLUSIVE")
		})
		if !hot.IsHeld(err) {
			return err
		}
		sleep.For(ctx, 100*time.Millisecond)
	}
	return err
}

// liveStage returns a stage that has a live task, or "". It looks at some stages, or (nil) at
// all. Call stop before, as a task may be moving from one table to another.
func liveStage(
	ctx context.Context, tx pgx.Tx, t *config.Type, stages []string,
) (stage string, err error) {
	var selects []string
	for _, table := range config.TokenTables(t) {
		selects = append(selects, `(SELECT stage FROM `+table+
			` WHERE type = $1 AND ($2::text[] IS NULL OR stage = ANY ($2)) LIMIT 1)`)
	}
	err = tx.QueryRow(ctx, strings.Join(selects, " UNION ALL ")+" LIMIT 1", t.Number(), stages).
		Scan(&stage)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return stage, err
}
