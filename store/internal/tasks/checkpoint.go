package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// StageCheckpoint is what an attempt left for the next attempt of its stage.
type StageCheckpoint struct {
	Stage     string // as it was called then
	WrittenAt time.Time
	Document  json.RawMessage
}

const checkpointSQL = `
SELECT k.stage, k.written_at, k.document FROM {checkpoints} k
WHERE k.type = $1 AND k.id = $2 AND ` + records.CheckpointCountsSQL + `
  AND EXISTS (SELECT FROM {task} WHERE type = $1 AND id = $2)`

// Checkpoint returns the checkpoint that the next attempt of a task would get; CodeNotFound if
// there is no such task, or no checkpoint.
func (s *Tasks) Checkpoint(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (c StageCheckpoint, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return c, postgres.Wrap(err, "Checkpoint(%q, %s)", tenant, id)
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		c, err = s.readCheckpoint(ctx, t, id)
		return err
	})
	return c, postgres.Wrap(err, "Checkpoint(%q, %s)", tenant, id)
}

func (s *Tasks) readCheckpoint(
	ctx context.Context, t *config.Type, id asyncflow.TaskID,
) (c StageCheckpoint, err error) {
	if !t.Has(id.Position()) {
		return c, config.UnknownTask(id)
	}
	var document string
	err = s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(id.Position(), checkpointSQL), t.Number(),
		id.Number).Scan(&c.Stage, &c.WrittenAt, &document)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, asyncflow.Errorf(asyncflow.CodeNotFound,
			"no attempt of task %s has left a checkpoint that counts", id)
	}
	c.Document = json.RawMessage(document)
	return c, err
}
