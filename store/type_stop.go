package store

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// positions are those of a type's oldest, oldest live, and open roll.
type positions struct{ first, begin, end int }

func readPositions(ctx context.Context, q querier, tenant, name string) (p positions, err error) {
	err = q.QueryRow(ctx,
		`SELECT first_pos, begin_pos, end_pos FROM `+quote(schemaOf(tenant))+`.task_types
			WHERE name = $1`, name).
		Scan(&p.first, &p.begin, &p.end)
	return p, err
}

// stop keeps the token rows of a type in their tables until the transaction ends: submits,
// leases and settlements wait.
func (t *tables) stop(ctx context.Context, tx pgx.Tx, at positions) error {
	all := t.tokenTables(at)
	for p := at.begin; p <= at.end; p++ {
		all = append(all, t.task(p))
	}
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `LOCK TABLE `+strings.Join(all, ", ")+` IN SHARE ROW EXCLUSIVE MODE`)
	return err
}

// tokenTables returns the tables in which live tasks have a row.
func (t *tables) tokenTables(at positions) []string {
	var all []string
	for p := at.begin; p <= at.end; p++ {
		all = append(all, t.ready(p))
	}
	return append(all, t.lease, t.wait)
}

// liveStage returns a stage that has a live task, or "". It looks at some stages, or (nil) at
// all. Call stop before, as a task may be moving from one table to another.
func (t *tables) liveStage(
	ctx context.Context,
	tx pgx.Tx,
	at positions,
	stages []string,
) (stage string, err error) {
	var selects []string
	for _, table := range t.tokenTables(at) {
		selects = append(selects,
			`(SELECT stage FROM `+table+` WHERE $1::text[] IS NULL OR stage = ANY ($1) LIMIT 1)`)
	}
	err = tx.QueryRow(ctx, strings.Join(selects, " UNION ALL ")+" LIMIT 1", stages).Scan(&stage)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return stage, err
}
