package tasks

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A filter by fingerprint reads the errors of the candidates of a window before it looks for the
// tasks among them: the fingerprint of an error is known to this program, not to Postgres.

// errorWindow is how many candidates a step of an operation by fingerprint looks at.
const errorWindow = 5000

// memberSQL holds for tasks with one of the rows of the journal that were found to have the
// fingerprint, if that row is still their last one. A name in an object is found by a binary search.
const memberSQL = `
  AND $members::jsonb ? (t.id || '.' || j.seq)`

// errorsSQL selects the last errors of the candidates, as far as a fingerprint reads them. A task
// that failed without a text has one, too: its text was erased.
func (c criteria) errorsSQL(bounds string) string {
	return fmt.Sprintf(`
SELECT c.id, j.seq, j.outcome, coalesce(j.status, 0), coalesce(left(j.error, %d), '')
FROM %s c CROSS JOIN LATERAL (SELECT * FROM {journal} j
  WHERE j.type = $1 AND j.id = c.id ORDER BY seq DESC LIMIT 1) j
WHERE j.error IS NOT NULL OR j.final = 'failed'`, asyncflow.FingerprintText+1,
		c.candidates(bounds))
}

// collectMembers collects the rows of errorsSQL with a fingerprint.
func (c *criteria) collectMembers(rows pgx.Rows) error {
	c.members = map[string]int{}
	var id int64
	var seq, answer int
	var outcome asyncflow.OutcomeKind
	var text string
	_, err := pgx.ForEachRow(rows, []any{&id, &seq, &outcome, &answer, &text}, func() error {
		code := asyncflow.ErrorCode(outcome, answer, text)
		if asyncflow.Fingerprint(code, asyncflow.ErrorPattern(text)) == c.fingerprint {
			c.members[strconv.FormatInt(id, 10)+"."+strconv.Itoa(seq)] = 0
		}
		return nil
	})
	return err
}

// withMembers returns the criteria with the tasks of a window that have the fingerprint. They stay
// as they are without one. The database ends the statement after the time most; 0: it doesn't.
func (s *Tasks) withMembers(
	ctx context.Context, t *config.Type, c criteria, least, before int64, window int,
	most time.Duration,
) (criteria, error) {
	if c.fingerprint == "" {
		return c, nil
	}
	plain := c
	plain.content = "" // all candidates of the window: those that are searched are among them
	settings := maps.Clone(postgres.HotSettings)
	if most > 0 {
		settings["statement_timeout"] = strconv.FormatInt(most.Milliseconds(), 10)
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	postgres.QueueSettings(b, settings)
	position := asyncflow.TaskID{Number: before - 1}.Position()
	b.Queue(t.SQL(position, plain.errorsSQL(latest)),
		plain.bound(t.Number(), least, before, window)...).Query(c.collectMembers)
	b.Queue("COMMIT")
	err := s.core.DB(t.Tenant).Send(ctx, b)
	return c, err
}
