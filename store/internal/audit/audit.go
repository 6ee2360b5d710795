package audit

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// AuditOf returns the table of a tenant's audit or, with "", of the audit that belongs to no
// tenant.
func TableOf(tenant string) string {
	if tenant == "" {
		return schema.Base + ".audit"
	}
	return postgres.Quote(schema.Of(tenant)) + ".audit"
}

const columns = `id, at, origin, tenant, subject, token_id, issuer, scopes, action,
  object_type, object, address, proxy, request_id, user_agent, outcome, status, code, detail,
  claimed, calls, last_at`

// InsertAudit adds an entry. The table's rules allow no ON CONFLICT: a caller that may have
// written the entry before accepts a unique violation.
func Insert(ctx context.Context, q postgres.Execer, tenant string, e asyncflow.AuditEntry) error {
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
	_, err = q.Exec(ctx, `INSERT INTO `+TableOf(tenant)+` (`+columns+`)
		VALUES ($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
		  $17::int,
		    $18, $19::text::json, $20::text::json, $21, $22)`,
		e.ID, e.At, string(e.Origin), postgres.OrNull(e.Tenant), postgres.OrNull(e.Subject),
		postgres.OrNull(e.TokenID), postgres.OrNull(e.Issuer), postgres.OrNull(e.Scopes), e.Action,
		postgres.OrNull(e.ObjectType), postgres.OrNull(e.Object), postgres.OrNull(e.Address),
		postgres.OrNull(e.Proxy), postgres.OrNull(e.RequestID), postgres.OrNull(e.UserAgent),
		string(e.Outcome), postgres.OrNull(e.Status), postgres.OrNull(e.Code),
		postgres.OrNull(string(detail)), postgres.OrNull(string(claimed)), e.Calls,
		postgres.OrNull(e.LastAt))
	return err
}

// Record writes the entry of an ended audited call, with its outcome, unless a change wrote it
// already.
func Record(ctx context.Context, core *catalog.Core, a *Call) error {
	if a.written {
		return nil
	}
	if a.At.IsZero() {
		a.At = core.Clock.Now()
	}
	err := Insert(ctx, core.DB(a.Schema), a.Schema, a.AuditEntry)
	// The change was made after all, though its answer was lost.
	if postgres.State(err) == pgerrcode.UniqueViolation {
		err = nil
	}
	a.written = err == nil
	return postgres.Wrap(err, "Record(%q, %s)", a.Schema, a.Action)
}

// RecordAll writes the entries of ended audited calls, all or none. It skips entries that are in
// the audit already. Entries of a tenant that is gone go to the audit that belongs to no tenant.
func RecordAll(ctx context.Context, core *catalog.Core, calls []*Call) error {
	err := pgx.BeginFunc(ctx, core.DB(""), func(tx pgx.Tx) error {
		for _, a := range calls {
			if !core.Catalog.HasTenant(a.Schema) { // it is gone
				a.Schema = ""
			}
			if err := core.Roles.AsAny(ctx, tx, a.Schema); err != nil {
				return err
			}
			var there bool
			if err := tx.QueryRow(ctx,
				`SELECT EXISTS (SELECT FROM `+TableOf(a.Schema)+` WHERE id = $1::uuid)`,
				a.ID).Scan(&there); err != nil {
				return err
			}
			if there {
				continue
			}
			if err := Insert(ctx, tx, a.Schema, a.AuditEntry); err != nil {
				return err
			}
		}
		return nil
	})
	return postgres.Wrap(err, "RecordAll(%d)", len(calls))
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
		return postgres.Wrap(err, "RecordByHand(%s)", e.Action)
	}
	e.ID = uuid.Must(uuid.NewV7()).String()
	e.Calls = 1
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&e.At); err != nil {
		return postgres.Wrap(err, "RecordByHand(%s)", e.Action)
	}
	err = Insert(ctx, conn, "", e)
	if state := postgres.State(err); state == pgerrcode.UndefinedTable ||
		state == pgerrcode.InvalidSchemaName {
		return nil
	}
	return postgres.Wrap(err, "RecordByHand(%s)", e.Action)
}

// forgetAuditSQL selects a batch to delete. The rules of the table keep the last day, whatever
// $1 is.
const forgetSQL = ` WHERE id IN (SELECT id FROM {audit} WHERE at < $1
	  ORDER BY at, id LIMIT $2)`

// ForgetAudit deletes a batch of entries older than a time, of a tenant's audit or (with "") of
// the one that belongs to no tenant, and returns how many it deleted. No other statement
// deletes from the audit. It runs under the base role: a tenant's role may not delete.
func Forget(
	ctx context.Context, core *catalog.Core, tenant string, retention time.Duration,
) (int, error) {
	tag, err := core.DB("").Exec(ctx,
		`DELETE FROM `+TableOf(tenant)+strings.ReplaceAll(forgetSQL, "{audit}", TableOf(tenant)),
		core.Clock.Now().Add(-max(retention, asyncflow.MinAuditRetention)), catalog.JobBatch)
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetAudit(%q)", tenant)
}

// DryRunForgetAudit counts the entries that ForgetAudit would delete, in all batches.
func DryRunForget(
	ctx context.Context, core *catalog.Core, tenant string, retention time.Duration,
) (int, error) {
	return postgres.CountRows(ctx, core.DB(tenant),
		`SELECT count(*) FROM `+TableOf(tenant)+` WHERE at < $1`,
		core.Clock.Now().Add(-max(retention, asyncflow.MinAuditRetention)))
}
