package tasks

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// submittedContextSQL reads the context with which a task was submitted or, if a later submit
// replaced that, the one to which its key belongs: by its hash, and among the last $4 that it was
// given.
const submittedContextSQL = `
SELECT CASE WHEN t.options -> 'erased' IS NULL THEN coalesce(r.output, t.context) END
FROM {task} t LEFT JOIN LATERAL (
  SELECT j.output FROM (SELECT seq, output FROM {journal}
    WHERE type = t.type AND id = t.id AND outcome = 'changed' AND output IS NOT NULL
    ORDER BY seq DESC LIMIT $4) j
  WHERE sha256(convert_to(j.output, 'UTF8')) = (SELECT k.hash FROM {keys} k
    WHERE k.type = $3 AND k.key = t.options ->> 'key' AND k.id = t.id)
  ORDER BY j.seq DESC LIMIT 1) r ON true
WHERE t.type = $2 AND t.id = $1`

// replacedLooks is among how many contexts of a task the one of its key is looked for.
const replacedLooks = 20

// SubmittedContext returns the context that a task was submitted with, byte by byte, or with which
// a later submit replaced it; nil if it was erased, and CodeNotFound when there is no task.
func (s *Tasks) SubmittedContext(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (doc json.RawMessage, err error) {
	_, err = s.readTask(ctx, tenant, id, func(t *config.Type) (task Task, err error) {
		err = s.core.DB(tenant).QueryRow(ctx, t.SQL(id.Position(), submittedContextSQL),
			id.Number, t.Number(), t.Name, replacedLooks).Scan(&doc)
		return task, err
	})
	return doc, postgres.Wrap(err, "SubmittedContext(%q, %s)", tenant, id)
}
