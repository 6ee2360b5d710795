package store

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
)

// The words of package audit for callers of the store.

type (
	// AuditedCall is a call with one entry in the audit.
	AuditedCall = audit.Call
	// Precondition is what must be so for a change of something configured to be made.
	Precondition = audit.Precondition
)

const (
	// AnyETag stands for each ETag.
	AnyETag = audit.AnyETag
)

// AuditedCallOf returns the audited call of a context, or nil.
func AuditedCallOf(ctx context.Context) *AuditedCall { return audit.CallOf(ctx) }

// NewAuditedCall returns an audited call with an id of its own.
func NewAuditedCall(schema string, e asyncflow.AuditEntry) *AuditedCall {
	return audit.NewCall(schema, e)
}

// RecordByHand writes an entry for what the command line just did directly in the database at url.
func RecordByHand(ctx context.Context, url string, e asyncflow.AuditEntry) error {
	return audit.RecordByHand(ctx, url, e)
}

// WithAuditedCall returns a context in which changes write the entry of an audited call.
func WithAuditedCall(ctx context.Context, a *AuditedCall) context.Context {
	return audit.WithCall(ctx, a)
}

// WithPrecondition returns a context for one change, which is made only if p holds.
func WithPrecondition(ctx context.Context, p Precondition) context.Context {
	return audit.WithPrecondition(ctx, p)
}

// DryRunForgetAudit counts the entries that ForgetAudit would delete, in all batches.
func (s *Store) DryRunForgetAudit(
	ctx context.Context, tenant string, retention time.Duration,
) (int, error) {
	return audit.DryRunForget(ctx, s.core, tenant, retention)
}

// ForgetAudit deletes a batch of entries older than a time, of a tenant's audit or (with "") of the
// one that belongs to no tenant, and returns how many it deleted. No other statement deletes from
// the audit. It runs under the base role: a tenant's role may not delete.
func (s *Store) ForgetAudit(
	ctx context.Context, tenant string, retention time.Duration,
) (int, error) {
	return audit.Forget(ctx, s.core, tenant, retention)
}

// Record writes the entry of an audited call at its end, with its outcome, unless a change wrote it
// already.
func (s *Store) Record(ctx context.Context, a *AuditedCall) error {
	return audit.Record(ctx, s.core, a)
}

// RecordAll writes the entries of audited calls at their ends, all or none. It skips entries that
// are in the audit already. Entries of a tenant that is gone go to the audit that belongs to no
// tenant.
func (s *Store) RecordAll(ctx context.Context, calls []*AuditedCall) error {
	return audit.RecordAll(ctx, s.core, calls)
}
