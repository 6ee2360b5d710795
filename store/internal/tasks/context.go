package tasks

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// SubmittedContext returns the context that a task was submitted with, byte by byte; nil if it was
// erased, and CodeNotFound when there is no task.
func (s *Tasks) SubmittedContext(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (doc json.RawMessage, err error) {
	_, err = s.readTask(ctx, tenant, id, func(t *config.Type) (task Task, err error) {
		err = s.core.DB(tenant).QueryRow(ctx, t.SQL(id.Position(),
			`SELECT CASE WHEN options -> 'erased' IS NULL THEN context END FROM {task}
			WHERE type = $2 AND id = $1`), id.Number, t.Number()).
			Scan(&doc)
		return task, err
	})
	return doc, postgres.Wrap(err, "SubmittedContext(%q, %s)", tenant, id)
}
