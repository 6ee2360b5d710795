package config

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// ReadEndpoints reads endpoints of a tenant.
func ReadEndpoints(
	ctx context.Context, q postgres.Querier, tenant, taskType string,
) ([]asyncflow.Endpoint, error) {
	rows, _ := q.Query(ctx,
		SelectEndpoints(tenant)+`WHERE $1 IN ('', type) ORDER BY type, stage, created_at, id`,
		taskType)
	return pgx.CollectRows(rows, ScanEndpoint)
}

// ScanEndpoint reads a row of EndpointColumns.
func ScanEndpoint(row pgx.CollectableRow) (asyncflow.Endpoint, error) {
	return ScanEndpointAnd(row)
}

// SelectEndpoints begins a statement that reads endpoints.
func SelectEndpoints(tenant string) string {
	return `SELECT ` + EndpointColumns(tenant) + ` FROM ` + EndpointsAndHealth(tenant)
}

// EndpointColumns returns the columns that ScanEndpoint reads, of endpoints e and health h.
func EndpointColumns(tenant string) string {
	return `e.id::text, e.type, e.stage, e.url, e.weight, e.outbound, e.challenged, e.verified_at,
		e.verification_error, e.created_at, e.updated_at, coalesce(e.max_in_flight, 0),
		coalesce(e.rate, ''), coalesce(e.batch_max_tasks, 0), coalesce(e.batch_max_wait, '0'),
		coalesce(e.batch_max_wait_text, ''),
		coalesce(h.state, ''), h.since, h.until, coalesce(h.pause, '0'), coalesce(h.reason, ''),
		(SELECT json_agg(json_build_object('ID', s.id, 'Kind', s.kind,
		    'Sealed', encode(s.sealed, 'base64'), 'PublicKey', s.public_key,
		    'CreatedAt', s.created_at, 'ExpiresAt', s.expires_at)
		    ORDER BY s.expires_at DESC NULLS FIRST, s.created_at DESC, s.id DESC)
		 FROM ` + EndpointSecretsOf(tenant) + ` s WHERE s.endpoint = e.id)`
}

// EndpointsAndHealth returns the tables of EndpointColumns.
func EndpointsAndHealth(tenant string) string {
	return EndpointsOf(tenant) + ` e LEFT JOIN ` + HealthOf(tenant) + ` h ON h.endpoint = e.id `
}

// ScanEndpointAnd scans an endpoint and the columns after it.
func ScanEndpointAnd(row pgx.Row, more ...any) (e asyncflow.Endpoint, err error) {
	var verified, since, until *time.Time
	var rate, waitText string
	var wait time.Duration
	var secrets []byte
	err = row.Scan(append([]any{&e.ID, &e.Type, &e.Stage, &e.URL, &e.Weight, &e.Outbound,
		&e.Challenged, &verified, &e.VerificationError, &e.CreatedAt, &e.UpdatedAt,
		&e.Limits.MaxInFlight, &rate, &e.Batch.MaxTasks, &wait, &waitText,
		&e.Health.State, &since, &until, &e.Health.Pause, &e.Health.Reason, &secrets}, more...)...)
	if err == nil && secrets != nil {
		err = json.Unmarshal(secrets, &e.Secrets)
	}
	if err == nil && rate != "" {
		err = e.Limits.Rate.UnmarshalText([]byte(rate))
	}
	e.Batch.MaxWait = writtenWait(wait, waitText)
	e.VerifiedAt = postgres.OrZero(verified)
	e.Health.Since = postgres.OrZero(since)
	e.Health.Until = postgres.OrZero(until)
	return e, err
}

// EndpointSecretsOf returns the name of a tenant's table of secrets.
func EndpointSecretsOf(tenant string) string {
	return postgres.Quote(schema.Of(tenant)) + ".endpoint_secrets"
}

// EndpointsOf returns the name of a tenant's table of endpoints.
func EndpointsOf(tenant string) string { return postgres.Quote(schema.Of(tenant)) + ".endpoints" }

// HealthOf returns the name of a tenant's table of the health of endpoints.
func HealthOf(tenant string) string {
	return postgres.Quote(schema.Of(tenant)) + ".endpoint_health"
}

// writtenWait returns a duration as it was written, unless a node that knows no texts changed it
// since.
func writtenWait(wait time.Duration, text string) asyncflow.Duration {
	var written asyncflow.Duration
	if err := written.UnmarshalText([]byte(text)); err != nil || written.Std() != wait {
		return asyncflow.NewDuration(wait)
	}
	return written
}
