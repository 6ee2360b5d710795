package claims

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// askedEvery is how often it is written down that somebody asks for tasks of a stage.
const askedEvery = 15 * time.Second

// askedSQL writes down when somebody asked last, unless that was a moment ago.
const askedSQL = `
INSERT INTO {claim_stages} AS s (type, stage, asked_at)
SELECT $1::int, $2::text, $3::timestamptz WHERE NOT EXISTS (
  SELECT FROM {claim_stages} WHERE type = $1::int AND stage = $2::text AND asked_at > $4)
ON CONFLICT (type, stage) DO UPDATE SET asked_at = excluded.asked_at
WHERE s.asked_at < excluded.asked_at`

// AskedAt returns when somebody asked last for tasks of each stage of a tenant, to about a quarter
// of a minute. A stage has none if nobody ever has.
func (s *Claims) AskedAt(ctx context.Context, tenant string) (map[StageKey]time.Time, error) {
	schema := postgres.Quote(schema.Of(tenant))
	rows, _ := s.core.DB(tenant).Query(ctx, `SELECT t.name, c.stage, c.asked_at
		FROM `+schema+`.claim_stages c JOIN `+schema+`.task_types t ON t.number = c.type`)
	all := map[StageKey]time.Time{}
	var k StageKey
	var at time.Time
	_, err := pgx.ForEachRow(rows, []any{&k.Type, &k.Stage, &at}, func() error {
		all[k] = at
		return nil
	})
	return all, postgres.Wrap(err, "AskedAt(%q)", tenant)
}

// StageKey names a stage of a tenant's types.
type StageKey struct{ Type, Stage string }
