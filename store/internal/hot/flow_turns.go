package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// mostTurns is how many flow keys TurnsBefore counts at most.
const mostTurns = 1000

// KeysBefore are the flow keys with due tasks that get their turn before a key of a fair type.
type KeysBefore struct {
	First string // the key of the turn, if there is any
	Keys  int    // mostTurns at most
	More  bool   // there may be others
}

// TurnsBefore finds the flow keys that get their turn before one. It passes up to mostTurns keys
// without a due task.
func TurnsBefore(
	ctx context.Context, db postgres.Querier, t *config.Type, key string, now time.Time,
) (turns KeysBefore, err error) {
	last := turn{}
	err = db.QueryRow(ctx, t.SQL(0, turnSQL), t.Number()).Scan(&last.key, &last.left)
	if err != nil && err != pgx.ErrNoRows {
		return turns, err
	}
	if key == last.key && last.left > 0 {
		return turns, nil
	}
	sources := liveSources(t)
	rows, err := db.Query(ctx, t.SQL(0, skipSQL(t, sources)), t.Number(), last.key, now, mostTurns,
		mostTurns, stagesOf(sources))
	if err != nil {
		return turns, err
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
			if turns.Keys == 0 {
				turns.First = at
			}
			turns.Keys++
		}
		return nil
	})
	turns.More = !found && (idle == mostTurns || due == mostTurns)
	return turns, err
}

const turnSQL = `SELECT key, remaining FROM {turns} WHERE type = $1`
