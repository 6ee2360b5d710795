package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// MostTurns is how many flow keys TurnsBefore counts at most.
const MostTurns = 1000

// TurnsBefore counts the flow keys with due tasks that have their turn before a key of a fair type.
// It counts up to MostTurns, and passes as many keys without a due task; more reports whether there
// may be others.
func TurnsBefore(
	ctx context.Context, db postgres.Querier, t *config.Type, key string, now time.Time,
) (n int, more bool, err error) {
	last := turn{}
	err = db.QueryRow(ctx, t.SQL(0, turnSQL), t.Number()).Scan(&last.key, &last.left)
	if err != nil && err != pgx.ErrNoRows {
		return 0, false, err
	}
	if key == last.key && last.left > 0 {
		return 0, false, nil
	}
	sources := liveSources(t)
	rows, err := db.Query(ctx, t.SQL(0, skipSQL(t, sources)), t.Number(), last.key, now, MostTurns,
		MostTurns, stagesOf(sources))
	if err != nil {
		return 0, false, err
	}
	var part, idle, due int
	var at string
	var isDue, found bool
	_, err = pgx.ForEachRow(rows, []any{&part, &at, &isDue, &idle, &due}, func() error {
		switch {
		case found, !isDue, part == 0 && last.left == 0:
		case at == key:
			found = part > 0
		case !(part > 0 && last.left > 0 && at == last.key):
			n++
		}
		return nil
	})
	return n, !found && (idle == MostTurns || due == MostTurns), err
}

const turnSQL = `SELECT key, remaining FROM {turns} WHERE type = $1`
