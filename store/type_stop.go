package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// stopTries is how often stop tries to get its locks.
const stopTries = 20

// stop keeps the token rows of a type in their tables until the transaction ends: submits, leases
// and settlements wait, also those of other types with the same tables. So it doesn't wait in line
// for the locks, but tries again after a pause.
func (t *Type) stop(ctx context.Context, tx pgx.Tx) error {
	all := t.tokenTables()
	for _, p := range t.live() {
		all = append(all, t.setAt(p).tables.task(p))
	}
	var err error
	for range stopTries {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, lockPatience)
			if err == nil {
				_, err = tx.Exec(ctx, `LOCK TABLE `+strings.Join(all, ", ")+
					` IN SHARE ROW EXCLUSIVE MODE`)
			}
			return err
		})
		if !IsHeld(err) {
			return err
		}
		sleep(ctx, 100*time.Millisecond)
	}
	return err
}

// liveStage returns a stage that has a live task, or "". It looks at some stages, or (nil) at
// all. Call stop before, as a task may be moving from one table to another.
func (t *Type) liveStage(ctx context.Context, tx pgx.Tx, stages []string) (stage string, err error) {
	var selects []string
	for _, table := range t.tokenTables() {
		selects = append(selects, `(SELECT stage FROM `+table+
			` WHERE type = $1 AND ($2::text[] IS NULL OR stage = ANY ($2)) LIMIT 1)`)
	}
	err = tx.QueryRow(ctx, strings.Join(selects, " UNION ALL ")+" LIMIT 1", t.number, stages).
		Scan(&stage)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return stage, err
}
