package settings

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Tenant returns a tenant from the database; CodeNotFound when there is none.
func (s *tenants) Tenant(ctx context.Context, slug string) (config.StoredTenant, error) {
	t, err := config.ReadTenant(ctx, s.core.Base, slug, "")
	return t, postgres.Wrap(err, "Tenant(%q)", slug)
}

// TenantPage returns up to limit tenants after a name, by name, and reports whether there may be
// more.
func (s *tenants) TenantPage(
	ctx context.Context, after string, limit int,
) (page []config.StoredTenant, more bool, err error) {
	rows, _ := s.core.Base.Query(ctx,
		`SELECT `+config.TenantColumns+` FROM asyncflow.tenants WHERE slug > $1 ORDER BY slug
			LIMIT $2`,
		after, limit+1)
	page, err = pgx.CollectRows(rows, config.ScanTenant)
	if more = len(page) > limit; more {
		page = page[:limit]
	}
	return page, more, postgres.Wrap(err, "TenantPage")
}

// NamedTenants returns the tenants of some names that exist.
func (s *tenants) NamedTenants(
	ctx context.Context, slugs []string,
) (map[string]config.StoredTenant, error) {
	rows, _ := s.core.Base.Query(ctx,
		`SELECT `+config.TenantColumns+` FROM asyncflow.tenants WHERE slug = ANY ($1)`, slugs)
	named := map[string]config.StoredTenant{}
	all, err := pgx.CollectRows(rows, config.ScanTenant)
	for _, t := range all {
		named[t.Slug] = t
	}
	return named, postgres.Wrap(err, "NamedTenants")
}

// TenantPatch says what to change of a tenant.
type TenantPatch struct {
	Quotas  map[asyncflow.QuotaName]float64 // 0: the operator's default; a missing one stays
	Suspend *bool
	Reason  string // of a suspension
}

// PatchTenant changes a tenant and returns it. A tenant that is already suspended keeps its
// time, and its reason unless there is another one. A deleted tenant is CodeConflict. Once
// PatchTenant has suspended a tenant, this node begins no lease of it, see Pause.
func (s *tenants) PatchTenant(
	ctx context.Context, slug string, p TenantPatch,
) (t config.StoredTenant, err error) {
	return s.changeTenant(ctx, slug, func(tx pgx.Tx, old config.StoredTenant) error {
		switch {
		case !old.DeletedAt.IsZero():
			return stillThere(old)
		case p.Suspend != nil && *p.Suspend && slug == asyncflow.OperatorTenant:
			return operatorsOwn(slug)
		}
		own, err := old.Own.With(p.Quotas)
		if err != nil {
			return err
		}
		quotas, err := json.Marshal(own)
		if err != nil {
			return err
		}
		at, reason := old.SuspendedAt, old.SuspendReason
		switch {
		case p.Suspend == nil:
		case !*p.Suspend:
			at = time.Time{}
			reason = ""
		default:
			if at.IsZero() {
				at = s.core.Clock.Now()
				reason = ""
			}
			if p.Reason != "" {
				reason = p.Reason
			}
		}
		_, err = tx.Exec(ctx,
			`UPDATE asyncflow.tenants SET quotas = $2::text::json, suspended_at = $3,
				suspend_reason = nullif($4, '') WHERE slug = $1`,
			slug, string(quotas), postgres.OrNull(at), reason)
		return err
	})
}

// operatorsOwn refuses to suspend or delete the operator's own tenant.
func operatorsOwn(slug string) error {
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"the tenant %s is asyncflow's own: the operator's alerts are its tasks", slug)
}

// DeleteTenant suspends a tenant and returns it; after a grace (nil: DefaultGrace) it is
// dropped. For a tenant that is already deleted it changes only the time, if a grace is given.
func (s *tenants) DeleteTenant(
	ctx context.Context, slug string, grace *time.Duration,
) (config.StoredTenant, error) {
	return s.changeTenant(ctx, slug, func(tx pgx.Tx, old config.StoredTenant) error {
		now := s.core.Clock.Now()
		at := now.Add(asyncflow.DefaultGrace)
		if grace != nil {
			at = now.Add(*grace)
		}
		switch {
		case slug == asyncflow.OperatorTenant:
			return operatorsOwn(slug)
		case !old.DroppingAt.IsZero(), !old.DeletedAt.IsZero() && grace == nil:
			return nil
		}
		_, err := tx.Exec(ctx,
			`UPDATE asyncflow.tenants SET deleted_at = coalesce(deleted_at, $2), drop_at = $3
				WHERE slug = $1`, slug, now, at)
		return err
	})
}

// RestoreTenant takes a deletion back and returns the tenant, suspended if it was before.
// CodeConflict once the drop has begun.
func (s *tenants) RestoreTenant(ctx context.Context, slug string) (config.StoredTenant, error) {
	return s.changeTenant(ctx, slug, func(tx pgx.Tx, old config.StoredTenant) error {
		if !old.DroppingAt.IsZero() {
			return stillThere(old)
		}
		_, err := tx.Exec(ctx,
			`UPDATE asyncflow.tenants SET deleted_at = NULL, drop_at = NULL WHERE slug = $1`, slug)
		return err
	})
}

// changeTenant locks and changes the row of a tenant, and returns it.
func (s *tenants) changeTenant(
	ctx context.Context, slug string, do func(tx pgx.Tx, old config.StoredTenant) error,
) (t config.StoredTenant, err error) {
	err = audit.ChangeBase(ctx, s.core, slug, func(tx pgx.Tx) error {
		old, err := config.ReadTenant(ctx, tx, slug, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := audit.CheckPrecondition(ctx, old.ETag(), false); err != nil {
			return err
		}
		if err := do(tx, old); err != nil {
			return err
		}
		t, err = config.ReadTenant(ctx, tx, slug, "")
		return err
	})
	return t, postgres.Wrap(err, "changeTenant(%q)", slug)
}

// TenantUsage returns how much a tenant uses of each quota. It leaves out quotas that aren't
// used up, such as the size of a context. The rates are of the last minute.
func (s *tenants) TenantUsage(
	ctx context.Context, slug string,
) (map[asyncflow.QuotaName]float64, error) {
	db := s.core.DB(slug)
	used, err := configUse(ctx, db, slug)
	if err != nil {
		return nil, postgres.Wrap(err, "TenantUsage(%q)", slug)
	}
	var live, submitted, attempts, running float64
	err = db.QueryRow(ctx, config.NewTables(slug, config.SharedSet).SQL(0, usageSQL),
		s.core.Clock.Now().Add(-counts.RateWindow)).Scan(&live, &submitted, &attempts, &running)
	used[asyncflow.QuotaPendingTasks] = live
	used[asyncflow.QuotaSubmitsPerSecond] = submitted / counts.RateWindow.Seconds()
	used[asyncflow.QuotaDeliveriesPerSecond] = attempts / counts.RateWindow.Seconds()
	used[asyncflow.QuotaConcurrency] = running
	return used, postgres.Wrap(err, "TenantUsage(%q)", slug)
}

// usageSQL reads what a tenant's tasks use. It adds up the tallies, whose sums are exact, instead
// of counting the tasks in line. Leases are as few as the tasks that run.
const usageSQL = `
SELECT coalesce(sum(submitted - succeeded - failed - cancelled), 0)::float8,
  coalesce(sum(submitted) FILTER (WHERE at > $1), 0)::float8,
  coalesce(sum(attempts) FILTER (WHERE at > $1), 0)::float8,
  (SELECT count(*) FROM {lease})::float8
FROM {tallies}`
