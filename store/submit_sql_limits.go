package store

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Tasks that are submitted by SQL (see migration 11 of a tenant's schema) meet no node. What a
// node would hold them against stands in the tenant's schema, in submit_limits: whether the
// tenant is suspended, and limits of which the operator's are known to nodes alone. Each
// node writes it for each tenant when it starts, and when what it knows has changed.

// submitLimits writes them.
type submitLimits struct {
	store   *Store
	written map[string]submitLimit // by tenant
}

// submitLimit is what the tasks of a tenant are held against.
type submitLimit struct {
	refusal      string // "": its calls are taken
	contextBytes int64
	pendingTasks int64     // 0: no limit
	made         time.Time // the tenant: a dropped one's name may come back
}

func (s *Store) newSubmitLimits() *submitLimits {
	return &submitLimits{s, map[string]submitLimit{}}
}

// submitLimitOf returns what this node holds the tasks of a tenant against.
func (s *Store) submitLimitOf(t *Tenant) submitLimit {
	l := submitLimit{contextBytes: int64(s.cfg.MaxContext), pendingTasks: t.Quotas.PendingTasks,
		made: t.CreatedAt}
	if t.Quotas.ContextBytes > 0 {
		l.contextBytes = min(l.contextBytes, t.Quotas.ContextBytes)
	}
	var refusal *asyncflow.Error
	if errors.As(t.Refusal(), &refusal) {
		l.refusal = refusal.Detail()
	}
	return l
}

// write writes the limits of those tenants whose limits are others than when they were
// last written. One tenant's failure doesn't keep the others from their turn.
func (w *submitLimits) write(ctx context.Context) error {
	var errs []error
	maps.DeleteFunc(w.written,
		func(slug string, _ submitLimit) bool { return !w.store.Catalog.HasTenant(slug) })
	for slug := range w.store.Catalog.Tenants() {
		t, ok := w.store.Catalog.Tenant(slug)
		if !ok {
			continue
		}
		limit := w.store.submitLimitOf(t)
		if w.written[slug] == limit {
			continue
		}
		_, err := w.store.of(slug).Exec(ctx, `UPDATE `+quote(schemaOf(slug))+`.submit_limits
			SET refusal = nullif($1, ''), context_bytes = $2, pending_tasks = $3
			WHERE (coalesce(refusal, ''), context_bytes, pending_tasks) <> ($1, $2,
			    $3)`, limit.refusal, limit.contextBytes, limit.pendingTasks)
		if err != nil {
			errs = append(errs, wrap(err, "write the limits of %q", slug))
			continue
		}
		w.written[slug] = limit
	}
	return errors.Join(errs...)
}
