package settings

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Alerts are the endpoint of a tenant's alerts and the rules that raise them.
type Alerts struct {
	Endpoint  asyncflow.Endpoint // of the task type AlertType
	Rules     asyncflow.AlertRules
	UpdatedAt time.Time
}

func alertsOf(tenant string) string { return postgres.Quote(schema.Of(tenant)) + ".alerts" }
func episodesOf(tenant string) string {
	return postgres.Quote(schema.Of(tenant)) + ".alert_episodes"
}

// alertType returns the task type of alerts as it is created. Its owner may change it.
func alertType() asyncflow.TaskType {
	return asyncflow.TaskType{Name: asyncflow.AlertType,
		Stages: []asyncflow.Stage{{Name: asyncflow.AlertStage,
			Timeout: asyncflow.NewDuration(10 * time.Second)}}}.WithDefaults()
}

// PutAlerts creates or changes a tenant's alerts: their rules and their endpoint. It uses
// the endpoint's ID, URL, Secrets and Challenged. Without secrets the present ones stay. If the URL
// stays, so do its verification and its health. PutAlerts also creates the task type if there
// is none.
func (s *alerts) PutAlerts(ctx context.Context, tenant string, a Alerts) (Alerts, error) {
	err := s.checkNewUses(ctx, a.Rules.Uses(), func() ([]asyncflow.Capability, error) {
		old, err := s.Alerts(ctx, tenant)
		return old.Rules.Uses(), err
	})
	if err != nil {
		return a, err
	}
	rules, err := json.Marshal(a.Rules)
	if err != nil {
		return a, err
	}
	now := s.core.Clock.Now()
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		if err := needAlertType(audit.WithoutPrecondition(ctx), tx, tenant, now); err != nil {
			return err
		}
		if err := checkAlertsPrecondition(ctx, tx, tenant); err != nil {
			return err
		}
		if err := writeAlerts(ctx, tx, tenant, a, string(rules), now); err != nil {
			return err
		}
		if len(a.Endpoint.Secrets) > 0 {
			if err := writeSecrets(ctx, tx, tenant, a.Endpoint); err != nil {
				return err
			}
		}
		return s.checkDuplicate(ctx, tx, tenant, a.Endpoint)
	})
	// Another call has just created the same.
	if state := postgres.State(err); state == pgerrcode.DuplicateTable ||
		state == pgerrcode.UniqueViolation {
		return s.PutAlerts(ctx, tenant, a)
	}
	if err != nil {
		return a, postgres.Wrap(err, "PutAlerts(%q)", tenant)
	}
	return s.Alerts(ctx, tenant)
}

// writeAlerts writes the rules and the endpoint of alerts, in place of earlier ones.
func writeAlerts(
	ctx context.Context, tx pgx.Tx, tenant string, a Alerts, rules string, now time.Time,
) error {
	schema := postgres.Quote(schema.Of(tenant))
	for _, st := range []struct {
		sql  string
		args []any
	}{
		{`DELETE FROM ` + config.HealthOf(tenant) + ` h USING ` + schema + `.endpoints e
			WHERE h.endpoint = e.id AND e.id = $1::uuid AND e.url <> $2`,
			[]any{a.Endpoint.ID, a.Endpoint.URL}},
		{`DELETE FROM ` + schema + `.endpoints
			WHERE id IN (SELECT endpoint FROM ` + schema + `.alerts)
			  AND id <> $1::uuid`, []any{a.Endpoint.ID}},
		{`INSERT INTO ` + schema + `.endpoints AS e (id, type, stage, url, challenged, created_at,
			  updated_at) VALUES ($1::uuid, $2, $3, $4, $5, $6, $6)
			ON CONFLICT (id) DO UPDATE SET url = excluded.url, updated_at = excluded.updated_at,
			  challenged = CASE WHEN e.url = excluded.url THEN e.challenged
			    ELSE excluded.challenged END,
			  verified_at = CASE WHEN e.url = excluded.url THEN e.verified_at END,
			  verification_error = CASE WHEN e.url = excluded.url THEN e.verification_error
			    ELSE '' END`,
			[]any{a.Endpoint.ID, asyncflow.AlertType, asyncflow.AlertStage, a.Endpoint.URL,
				a.Endpoint.Challenged, now}},
		{`INSERT INTO ` + schema + `.alerts (endpoint, rules, updated_at)
			VALUES ($1::uuid, $2::text::json, $3)
			ON CONFLICT (endpoint) DO UPDATE SET rules = excluded.rules,
			  updated_at = excluded.updated_at`, []any{a.Endpoint.ID, rules, now}},
	} {
		if _, err := tx.Exec(ctx, st.sql, st.args...); err != nil {
			return err
		}
	}
	return nil
}

// needAlertType creates the task type of alerts, or locks the present one.
func needAlertType(ctx context.Context, tx pgx.Tx, tenant string, now time.Time) error {
	t, err := config.ReadTaskType(ctx, tx, tenant, asyncflow.AlertType, "FOR UPDATE")
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound && err != nil:
		_, _, err = writeTaskType(ctx, tx, tenant, alertType(), now)
		return err
	case err == nil && t.StageIndex(asyncflow.AlertStage) < 0:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task type %s has no stage %q any more: alerts need it", asyncflow.AlertType,
			asyncflow.AlertStage)
	}
	return err
}

// Alerts returns a tenant's alerts; CodeNotFound when it has none.
func (s *alerts) Alerts(ctx context.Context, tenant string) (Alerts, error) {
	a, err := readAlerts(ctx, s.core.DB(tenant), tenant)
	return a, postgres.Wrap(err, "Alerts(%q)", tenant)
}

// lockAlerts locks the endpoint of a tenant's alerts, and then reads them; CodeNotFound when it has
// none.
func lockAlerts(ctx context.Context, tx pgx.Tx, tenant string) (Alerts, error) {
	_, err := lockEndpoints(ctx, tx, tenant, `id IN (SELECT endpoint FROM `+alertsOf(tenant)+`)`)
	if err != nil {
		return Alerts{}, err
	}
	return readAlerts(ctx, tx, tenant)
}

// checkAlertsPrecondition locks a tenant's alerts, if it has some, and checks the precondition of a
// PUT.
func checkAlertsPrecondition(ctx context.Context, tx pgx.Tx, tenant string) error {
	old, err := lockAlerts(ctx, tx, tenant)
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		return audit.CheckPrecondition(ctx, "", false)
	case err != nil:
		return err
	}
	return audit.CheckPrecondition(ctx, old.ETag(), false)
}

func readAlerts(ctx context.Context, q postgres.Querier, tenant string) (Alerts, error) {
	var a Alerts
	var rules []byte
	row := q.QueryRow(ctx, `SELECT `+config.EndpointColumns(tenant)+`, a.rules, a.updated_at
		FROM `+config.EndpointsAndHealth(tenant)+`JOIN `+alertsOf(tenant)+` a ON a.endpoint = e.id`)
	var err error
	a.Endpoint, err = config.ScanEndpointAnd(row, &rules, &a.UpdatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, noAlerts()
	}
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(rules, &a.Rules)
}

func noAlerts() error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "no alerts are set up for this tenant")
}

// DeleteAlerts ends a tenant's alerts, with their endpoint and episodes; CodeNotFound
// when it has none. The task type stays.
func (s *alerts) DeleteAlerts(ctx context.Context, tenant string) error {
	err := audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		old, err := lockAlerts(ctx, tx, tenant)
		if err != nil {
			return err
		}
		if err := audit.CheckPrecondition(ctx, old.ETag(), false); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM `+config.EndpointsOf(tenant)+` WHERE id = $1::uuid`,
			old.Endpoint.ID)
		return err
	})
	return postgres.Wrap(err, "DeleteAlerts(%q)", tenant)
}

// alertTurn is the least time between two evaluations of a tenant's rules.
const alertTurn = 10 * time.Second

// TakeAlertTurn returns a tenant's rules if it is time to evaluate them. No other node gets a
// turn for alertTurn: if the node dies, another one follows after that.
func (s *alerts) TakeAlertTurn(
	ctx context.Context, tenant string,
) (rules asyncflow.AlertRules, ours bool, err error) {
	now := s.core.Clock.Now()
	var raw []byte
	err = s.core.DB(tenant).QueryRow(ctx,
		`UPDATE `+alertsOf(tenant)+` SET evaluated_at = $1 WHERE evaluated_at <= $2
			RETURNING rules`,
		now, now.Add(-alertTurn)).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return rules, false, nil
	}
	if err != nil {
		return rules, false, postgres.Wrap(err, "TakeAlertTurn(%q)", tenant)
	}
	err = json.Unmarshal(raw, &rules)
	return rules, err == nil, postgres.Wrap(err, "TakeAlertTurn(%q)", tenant)
}

// Failures counts the attempts of a tenant's types since a time, to the minute, from the
// tallies.
func (s *alerts) Failures(
	ctx context.Context, tenant string, since time.Time,
) (map[string]counts.Failing, error) {
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT type, sum(attempts)::bigint, sum(failures)::bigint
		FROM `+postgres.Quote(schema.Of(tenant))+`.tallies WHERE at > $1 GROUP BY type`, since)
	all := map[string]counts.Failing{}
	var name string
	var f counts.Failing
	_, err := pgx.ForEachRow(rows, []any{&name, &f.Attempts, &f.Failures}, func() error {
		all[name] = f
		return nil
	})
	return all, postgres.Wrap(err, "Failures(%q)", tenant)
}

// FailedForGood counts the tasks of a tenant's types that have failed for good since a time, to the
// minute; since one more than two hours ago, to the hour. Whether they were redriven since doesn't
// matter. It reads only tallies with such tasks since then, by an index.
func (s *alerts) FailedForGood(
	ctx context.Context, tenant string, since time.Time,
) (map[string]int64, error) {
	ctx = postgres.Patient(ctx)
	unit := time.Minute
	if s.core.Clock.Now().Sub(since) > tallyMinutes {
		unit = time.Hour
	}
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT type, sum(failed)::bigint FROM `+postgres.Quote(schema.Of(tenant))+`.tallies
		WHERE at >= $1 AND failed > 0 GROUP BY type`, since.Truncate(unit))
	all := map[string]int64{}
	var name string
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		all[name] = n
		return nil
	})
	return all, postgres.Wrap(err, "FailedForGood(%q)", tenant)
}

// tallyMinutes is how long tallies are kept by minute: see Fold.
const tallyMinutes = 2 * time.Hour

// RollOpened returns when the open roll of a table set was opened.
func (s *alerts) RollOpened(ctx context.Context, set *config.TableSet) (at time.Time, err error) {
	err = s.core.DB(set.Tenant).QueryRow(ctx, set.Tables.SQL(0,
		`SELECT opened_at FROM {rolls} WHERE table_set = $1 AND position = $2`), set.Name,
		set.End).Scan(&at)
	return at, postgres.Wrap(err, "RollOpened(%q, %q)", set.Tenant, set.Name)
}

// ETag changes with the rules, the endpoint and its secrets.
func (a Alerts) ETag() string {
	return config.ETagOf(config.EndpointETag(a.Endpoint), a.Rules)
}
