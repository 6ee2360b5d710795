package hot

import (
	"bytes"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// sameSpawn reports whether an attempt that is settled started the tasks of an outcome, and no
// others. For types that start none it asks nothing.
func sameSpawn(
	ctx context.Context, db postgres.Querier, t *config.Type, id int64, seq int,
	o asyncflow.Outcome,
) (bool, error) {
	if len(o.Spawn) == 0 && !t.Spawns() {
		return true, nil
	}
	var hash []byte
	err := db.QueryRow(ctx, t.SQL(0, `SELECT hash FROM {spawns}
		WHERE type = $1 AND id = $2 AND seq = $3`), t.Number(), id, seq).Scan(&hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return len(o.Spawn) == 0, nil
	}
	return bytes.Equal(hash, o.SpawnHash()), err
}
