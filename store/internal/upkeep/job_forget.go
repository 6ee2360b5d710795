package upkeep

import (
	"context"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
	"github.com/asyncflow/asyncflow/store/internal/settings"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
)

// firstRecordsSQL reads the times of the oldest rows of each kind that are forgotten one day.
const firstRecordsSQL = `
SELECT (SELECT min(finished_at) FROM {schema}.operations WHERE state <> 'running'),
  (SELECT min(resolved_at) FROM {schema}.alert_episodes WHERE resolved_task IS NOT NULL),
  least((SELECT min(at) FROM {schema}.endpoint_minutes),
    (SELECT min(at) FROM {schema}.type_minutes)),
  (SELECT min(expires_at) FROM {schema}.endpoint_secrets),
  (SELECT min(at) FROM {schema}.audit),
  least((SELECT min(until) FROM {schema}.claim_windows), (SELECT min(until) FROM {schema}.votes),
    (SELECT min(until) FROM {schema}.voters)),
  (SELECT min(check_at) FROM {schema}.checkpoints),
  (SELECT min(kept_until) FROM {schema}.signals)`

// FirstForget returns when the first of a tenant's present rows is old enough to be forgotten: an
// ended operation, a resolved episode of an alert, a minute of an endpoint or type, a secret, the
// window of a claimer, a late vote, a claimer who votes no more, a checkpoint to be checked, a
// signal that nobody took, or an entry of the audit. Entries of the audit are kept for audit (0:
// for ever). Zero: none ever is.
func (s *Upkeep) FirstForget(
	ctx context.Context, tenant string, audit time.Duration,
) (first time.Time, err error) {
	var at [8]*time.Time
	sql := strings.ReplaceAll(firstRecordsSQL, "{schema}", postgres.Quote(schema.Of(tenant)))
	err = s.core.DB(tenant).QueryRow(ctx, sql).Scan(&at[0], &at[1], &at[2], &at[3], &at[4], &at[5],
		&at[6], &at[7])
	if audit == 0 {
		at[4] = nil
	}
	kept := [8]time.Duration{tasks.OperationsKept, settings.EpisodesKept, counts.MinutesKept, 0,
		max(audit, asyncflow.MinAuditRetention), 0, 0, 0}
	for i := range at {
		if at[i] == nil {
			continue
		}
		if next := at[i].Add(kept[i]); first.IsZero() || next.Before(first) {
			first = next
		}
	}
	return first, postgres.Wrap(err, "FirstForget(%q)", tenant)
}

// FirstKeys returns when the first idempotency key of each of some tenants expires. It leaves out
// tenants without keys.
func (s *Upkeep) FirstKeys(ctx context.Context, tenants []string) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants,
		`SELECT i, min(expires_at) FROM {schema}.idempotency_keys`)
	return all, postgres.Wrap(err, "FirstKeys")
}

// LastTallies returns the time of the last tally of each of some tenants. It leaves out tenants
// without tallies.
func (s *Upkeep) LastTallies(ctx context.Context, tenants []string) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants, `SELECT i, max(at) FROM {schema}.tallies`)
	return all, postgres.Wrap(err, "LastTallies")
}
