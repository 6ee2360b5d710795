package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// auditOf returns the table of a tenant's audit or, with "", of the audit that belongs to no
// tenant.
func auditOf(tenant string) string {
	if tenant == "" {
		return schema.Base + ".audit"
	}
	return quote(schemaOf(tenant)) + ".audit"
}

const auditColumns = `id, at, origin, tenant, subject, token_id, issuer, scopes, action,
  object_type, object, address, proxy, request_id, user_agent, outcome, status, code, detail,
  claimed, calls, last_at`

// insertAudit adds an entry. The table's rules allow no ON CONFLICT: a caller that may have
// written the entry before accepts a unique violation.
func insertAudit(ctx context.Context, q execer, tenant string, e asyncflow.AuditEntry) error {
	e = e.Bounded()
	var detail, claimed []byte
	var err error
	if len(e.Detail) > 0 {
		if detail, err = json.Marshal(e.Detail); err != nil {
			return err
		}
	}
	if e.Claimed != (asyncflow.AuditClaim{}) {
		if claimed, err = json.Marshal(e.Claimed); err != nil {
			return err
		}
	}
	_, err = q.Exec(ctx, `INSERT INTO `+auditOf(tenant)+` (`+auditColumns+`)
		VALUES ($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17::int,
		    $18, $19::text::json, $20::text::json, $21, $22)`,
		e.ID, e.At, string(e.Origin), orNull(e.Tenant), orNull(e.Subject), orNull(e.TokenID),
		orNull(e.Issuer), orNull(e.Scopes), e.Action, orNull(e.ObjectType), orNull(e.Object),
		orNull(e.Address), orNull(e.Proxy), orNull(e.RequestID), orNull(e.UserAgent),
		string(e.Outcome), orNull(e.Status), orNull(e.Code), orNull(string(detail)),
		orNull(string(claimed)), e.Calls, orNull(e.LastAt))
	return err
}

// Record writes the entry of an audited call that has ended, with its outcome, unless a change
// has written it already.
func (s *core) Record(ctx context.Context, a *AuditedCall) error {
	if a.written {
		return nil
	}
	if a.At.IsZero() {
		a.At = s.Clock.Now()
	}
	err := insertAudit(ctx, s.of(a.Schema), a.Schema, a.AuditEntry)
	// The change was made after all, though its answer was lost.
	if sqlState(err) == pgerrcode.UniqueViolation {
		err = nil
	}
	a.written = err == nil
	return wrap(err, "Record(%q, %s)", a.Schema, a.Action)
}

// RecordAll writes the entries of audited calls that have ended, all or none. It skips entries
// that are in the audit already. Entries of a tenant that is gone go to the audit that belongs
// to no tenant.
func (s *core) RecordAll(ctx context.Context, calls []*AuditedCall) error {
	err := pgx.BeginFunc(ctx, s.base, func(tx pgx.Tx) error {
		for _, a := range calls {
			if !s.Catalog.HasTenant(a.Schema) { // it is gone
				a.Schema = ""
			}
			if err := s.roles.AsAny(ctx, tx, a.Schema); err != nil {
				return err
			}
			var there bool
			if err := tx.QueryRow(ctx,
				`SELECT EXISTS (SELECT FROM `+auditOf(a.Schema)+` WHERE id = $1::uuid)`,
				a.ID).Scan(&there); err != nil {
				return err
			}
			if there {
				continue
			}
			if err := insertAudit(ctx, tx, a.Schema, a.AuditEntry); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(err, "RecordAll(%d)", len(calls))
}

// RecordByHand writes an entry for what the command line has just done directly in the database
// at url. In a database without the table it does nothing, and it refuses one of a development
// version.
func RecordByHand(ctx context.Context, url string, e asyncflow.AuditEntry) error {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	if err := schema.RefuseDevelopment(ctx, conn); err != nil {
		return wrap(err, "RecordByHand(%s)", e.Action)
	}
	e.ID, e.Calls = uuid.Must(uuid.NewV7()).String(), 1
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&e.At); err != nil {
		return wrap(err, "RecordByHand(%s)", e.Action)
	}
	err = insertAudit(ctx, conn, "", e)
	if state := sqlState(err); state == pgerrcode.UndefinedTable ||
		state == pgerrcode.InvalidSchemaName {
		return nil
	}
	return wrap(err, "RecordByHand(%s)", e.Action)
}

// forgetAuditSQL selects a batch to delete. The rules of the table keep the last day, whatever
// $1 is.
const forgetAuditSQL = ` WHERE id IN (SELECT id FROM {audit} WHERE at < $1
	  ORDER BY at, id LIMIT $2)`

// ForgetAudit deletes a batch of entries older than a time, of a tenant's audit or (with "") of
// the one that belongs to no tenant, and returns how many it deleted. No other statement
// deletes from the audit. It runs under the base role: a tenant's role may not delete.
func (s *core) ForgetAudit(
	ctx context.Context,
	tenant string,
	retention time.Duration,
) (int, error) {
	tag, err := s.base.Exec(ctx,
		`DELETE FROM `+auditOf(tenant)+strings.ReplaceAll(forgetAuditSQL, "{audit}", auditOf(tenant)),
		s.Clock.Now().Add(-max(retention, asyncflow.MinAuditRetention)), JobBatch)
	return int(tag.RowsAffected()), wrap(err, "ForgetAudit(%q)", tenant)
}

// DryRunForgetAudit counts the entries that ForgetAudit would delete, in all batches.
func (s *core) DryRunForgetAudit(
	ctx context.Context,
	tenant string,
	retention time.Duration,
) (int, error) {
	return countRows(ctx, s.of(tenant), `SELECT count(*) FROM `+auditOf(tenant)+` WHERE at < $1`,
		s.Clock.Now().Add(-max(retention, asyncflow.MinAuditRetention)))
}
