package records

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// LifetimeMove is a change of the row of a task that doesn't end by it.
type LifetimeMove struct {
	ID    int64
	From  *time.Time  // as the row was read; nil: there was none or, to delete it, whatever it says
	Start *int16      // the same
	To    LifetimeRow // without At: the row goes
}

// MoveLifetimes changes rows that are still as they were read, and returns how many. A row that
// another transaction has locked is left alone: what that writes is newer. So it waits for nobody,
// and the caller may hold any locks.
func MoveLifetimes(
	ctx context.Context, tx pgx.Tx, t *config.Type, moves []LifetimeMove,
) (moved int, err error) {
	if len(moves) == 0 {
		return 0, nil
	}
	slices.SortFunc(moves, func(a, b LifetimeMove) int { return cmp.Compare(a.ID, b.ID) })
	to := func(m *LifetimeMove) *time.Time {
		if m.To.At.IsZero() {
			return nil
		}
		return &m.To.At
	}
	err = tx.QueryRow(ctx, t.SQL(0, MoveLifetimesSQL), t.Number(),
		Column(moves, func(m *LifetimeMove) int64 { return m.ID }),
		Column(moves, func(m *LifetimeMove) *time.Time { return m.From }),
		Column(moves, func(m *LifetimeMove) *int16 { return m.Start }),
		Column(moves, to),
		Column(moves, func(m *LifetimeMove) *int16 { return m.To.Start })).Scan(&moved)
	if err != nil {
		return moved, err
	}
	added := slices.DeleteFunc(slices.Clone(moves),
		func(m LifetimeMove) bool { return m.From != nil || m.To.At.IsZero() })
	if len(added) == 0 {
		return moved, nil
	}
	_, err = tx.Exec(ctx, t.SQL(0, addLifetimesSQL), t.Number(),
		Column(added, func(m *LifetimeMove) int64 { return m.ID }), Column(added, to),
		Column(added, func(m *LifetimeMove) *int16 { return m.To.Start }))
	return moved, err
}

// MoveLifetimesSQL locks the rows that are as they were read, and writes them by their ctid. A row
// that was updated since the statement began stays: the job finds it when it is due. For the form
// see TakeAnyWaitSQL.
const MoveLifetimesSQL = `
WITH moves AS (
  SELECT u.*
  FROM unnest($2::bigint[], $3::timestamptz[], $4::smallint[], $5::timestamptz[],
    $6::smallint[]) AS u (id, was, was_start, expires_at, start)),
old AS (SELECT m.*, k.t FROM moves m, LATERAL (
  SELECT ctid AS t FROM {lifetimes} WHERE type = $1 AND id BETWEEN m.id AND m.id
    AND (m.was IS NULL OR expires_at = m.was AND start IS NOT DISTINCT FROM m.was_start)
  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) k),
gone AS (DELETE FROM {lifetimes}
  WHERE ctid = ANY (ARRAY(SELECT t FROM old WHERE expires_at IS NULL))),
moved AS (UPDATE {lifetimes} l SET expires_at = o.expires_at, start = o.start FROM old o
  WHERE o.expires_at IS NOT NULL AND l.ctid = o.t)
SELECT count(*) FROM old`

// addLifetimesSQL writes rows of tasks that had none.
const addLifetimesSQL = `
INSERT INTO {lifetimes} (type, id, expires_at, start)
SELECT $1, u.* FROM unnest($2::bigint[], $3::timestamptz[], $4::smallint[]) u
ON CONFLICT DO NOTHING`
