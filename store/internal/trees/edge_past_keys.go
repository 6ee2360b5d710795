package trees

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// A dependent names a task by its idempotency key. When the key's window is over, ExpireKeys moves
// it from idempotency_keys to past_keys if its type is awaited, so that the task is found as long
// as it is kept.

// findPastKeys keeps the keys of the latest tasks of types that are awaited from now on. If that
// takes too long it keeps none: the dependencies are made all the same, and one on a past key waits
// for a task that is yet to come.
func (s *Trees) findPastKeys(ctx context.Context, tx pgx.Tx, tenant string, names []string) error {
	began := time.Now()
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		var usual string
		err := tx.QueryRow(ctx, `SELECT current_setting('statement_timeout')`).Scan(&usual)
		for _, name := range names {
			if t := s.core.Catalog.TypesOf(tenant)[name]; err == nil && t != nil {
				err = findPastKeysOf(ctx, tx, t, began.Add(pastKeysTime))
			}
		}
		if err != nil {
			return err
		}
		return limitStatements(ctx, tx, usual)
	})
	if postgres.State(err) == pgerrcode.QueryCanceled && ctx.Err() == nil {
		return nil
	}
	return err
}

// limitStatements sets the time that statements of the transaction may take.
func limitStatements(ctx context.Context, tx pgx.Tx, most string) error {
	_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, most)
	return err
}

// pastKeysTime is how long a search for past keys may take. It is part of a call.
const pastKeysTime = 5 * time.Second

// pastKeysMost is how many tasks of a type are searched for past keys.
const pastKeysMost = 10_000

// findPastKeysOf keeps the keys of the latest tasks of a type: once their windows are over, the
// keys are found nowhere else.
func findPastKeysOf(ctx context.Context, tx pgx.Tx, t *config.Type, until time.Time) error {
	t, err := config.RollsNow(ctx, tx, t)
	for p, left := t.End, pastKeysMost; err == nil && left > 0 && p >= t.First; p-- {
		if !t.Has(p) {
			continue
		}
		most := max(time.Until(until).Milliseconds(), 1)
		if err := limitStatements(ctx, tx, strconv.FormatInt(most, 10)); err != nil {
			return err
		}
		n := 0
		err = tx.QueryRow(ctx, t.SQL(p, `
			WITH t AS MATERIALIZED (
			  SELECT id, CASE WHEN NOT `+records.IsChildSQL+` THEN options->>'key' END AS key
			  FROM {task} t WHERE type = $1 ORDER BY id DESC LIMIT $2),
			past AS (INSERT INTO {past_keys} (type, key, id)
			  SELECT DISTINCT ON (key) $1, key, id FROM t WHERE key IS NOT NULL
			  ORDER BY key, id DESC
			  ON CONFLICT (type, key) DO NOTHING)
			SELECT count(*) FROM t`), t.Number(), left).Scan(&n)
		left -= n
	}
	return err
}
