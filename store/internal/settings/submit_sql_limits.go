package settings

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// No node checks tasks that are submitted by SQL (see submit_task in a tenant's schema). The
// table submit_limits of the tenant's schema has what a node would check: whether the tenant is
// suspended, and its limits. Only nodes know the operator's limits. Each node writes the row of
// each tenant when it starts, and when the limits have changed.

// SubmitLimits writes the limits of submits by SQL.
type SubmitLimits struct {
	tenants *tenants
	written map[string]submitLimit    // by tenant
	seen    map[string]*config.Tenant // as they were when their limits were written
}

// submitLimit has the limits of a tenant's tasks.
type submitLimit struct {
	refusal      string // why its calls are refused; "": they aren't
	contextBytes int64
	pendingTasks int64     // 0: no limit
	made         time.Time // when the tenant was created: the name may be that of a dropped one
}

// NewSubmitLimits returns limits that were not written yet.
func NewSubmitLimits(s *Settings) *SubmitLimits {
	return &SubmitLimits{&s.tenants, map[string]submitLimit{}, map[string]*config.Tenant{}}
}

// submitLimitOf returns the limits of a tenant as this node knows them.
func (s *tenants) submitLimitOf(t *config.Tenant) submitLimit {
	l := submitLimit{contextBytes: int64(s.core.Config.MaxContext),
		pendingTasks: t.Quotas.PendingTasks, made: t.CreatedAt}
	if t.Quotas.ContextBytes > 0 {
		l.contextBytes = min(l.contextBytes, t.Quotas.ContextBytes)
	}
	var refusal *asyncflow.Error
	if errors.As(t.Refusal(), &refusal) {
		l.refusal = refusal.Detail()
	}
	return l
}

// Write writes the limits that have changed since it last wrote them. An error of one tenant
// doesn't affect the other tenants.
func (w *SubmitLimits) Write(ctx context.Context) error {
	var errs []error
	maps.DeleteFunc(w.written,
		func(slug string, _ submitLimit) bool { return !w.tenants.core.Catalog.HasTenant(slug) })
	maps.DeleteFunc(w.seen,
		func(slug string, _ *config.Tenant) bool { return !w.tenants.core.Catalog.HasTenant(slug) })
	for slug := range w.tenants.core.Catalog.Tenants() {
		t, ok := w.tenants.core.Catalog.Tenant(slug)
		if !ok || w.seen[slug] == t {
			continue
		}
		limit := w.tenants.submitLimitOf(t)
		if w.written[slug] == limit {
			w.seen[slug] = t
			continue
		}
		if err := w.writeLimit(ctx, slug, limit); err != nil {
			errs = append(errs, postgres.Wrap(err, "write the limits of %q", slug))
			continue
		}
		w.written[slug] = limit
		w.seen[slug] = t
	}
	return errors.Join(errs...)
}

// writeLimit writes the limits of one tenant, if the database has different ones.
func (w *SubmitLimits) writeLimit(ctx context.Context, slug string, limit submitLimit) error {
	rows, err := postgres.Unprepared{Q: w.tenants.core.DB(slug)}.Query(ctx,
		`UPDATE `+postgres.Quote(schema.Of(slug))+`.submit_limits
		SET refusal = nullif($1, ''), context_bytes = $2, pending_tasks = $3
		WHERE (coalesce(refusal, ''), context_bytes, pending_tasks) <> ($1, $2, $3)`,
		limit.refusal, limit.contextBytes, limit.pendingTasks)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}
