package settings

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// AuditFilter says which entries to list. Empty fields other than Tenant don't filter.
type AuditFilter struct {
	Tenant       string    // "": entries that belong to no tenant
	Since, Until time.Time // at or after Since, before Until
	Action       string
	Subject      string
	Outcome      asyncflow.AuditOutcome
	Before       AuditPlace // the end of the previous page
	Limit        int
}

// AuditPlace is the place of an entry in the order of lists.
type AuditPlace struct {
	At time.Time
	ID string // a UUID
}

// Audit lists entries, newest first.
func (s *tenants) Audit(ctx context.Context, f AuditFilter) ([]asyncflow.AuditEntry, error) {
	where, args := f.conditions()
	rows, _ := s.core.DB(f.Tenant).Query(ctx,
		`SELECT id::text, at, origin, coalesce(tenant, ''), coalesce(subject, ''),
		  coalesce(token_id, ''), coalesce(issuer, ''), coalesce(scopes, ''), action,
		  coalesce(object_type, ''), coalesce(object, ''), coalesce(address, ''),
		  coalesce(proxy, ''), coalesce(request_id, ''), coalesce(user_agent, ''), outcome,
		  coalesce(status, 0), coalesce(code, ''), detail, claimed, calls, last_at
		FROM `+audit.TableOf(f.Tenant)+where+` ORDER BY at DESC, id DESC LIMIT $1`,
		append([]any{f.Limit}, args...)...)
	all, err := pgx.CollectRows(rows, scanAudit)
	return all, postgres.Wrap(err, "Audit(%q)", f.Tenant)
}

// conditions returns the WHERE of a filter, with parameters from $2 on.
func (f AuditFilter) conditions() (where string, args []any) {
	var all []string
	add := func(wanted bool, condition string, values ...any) {
		if !wanted {
			return
		}
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(args)+1), 1)
		}
		all = append(all, condition)
	}
	add(!f.Since.IsZero(), "at >= ?", f.Since)
	add(!f.Until.IsZero(), "at < ?", f.Until)
	add(f.Before.ID != "", "(at, id) < (?, ?::uuid)", f.Before.At, f.Before.ID)
	add(f.Action != "", "action = ?", f.Action)
	add(f.Subject != "", "subject = ?", f.Subject)
	add(f.Outcome != "", "outcome = ?", string(f.Outcome))
	if len(all) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(all, " AND "), args
}

func scanAudit(row pgx.CollectableRow) (e asyncflow.AuditEntry, err error) {
	var detail, claimed []byte
	var last *time.Time
	err = row.Scan(&e.ID, &e.At, &e.Origin, &e.Tenant, &e.Subject, &e.TokenID, &e.Issuer, &e.Scopes,
		&e.Action, &e.ObjectType, &e.Object, &e.Address, &e.Proxy, &e.RequestID, &e.UserAgent,
		&e.Outcome, &e.Status, &e.Code, &detail, &claimed, &e.Calls, &last)
	e.LastAt = postgres.OrZero(last)
	if err == nil && detail != nil {
		numbers := json.NewDecoder(bytes.NewReader(detail))
		numbers.UseNumber() // all their digits
		err = numbers.Decode(&e.Detail)
	}
	if err == nil && claimed != nil {
		err = json.Unmarshal(claimed, &e.Claimed)
	}
	return e, err
}
