package store

import (
	"context"
	"iter"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// The words of package catalog for callers of the store.

type (
	// AuditedCall is a call with one entry in the audit.
	AuditedCall = catalog.AuditedCall
	// Catalog has the configuration of all tenants as this node knows it.
	Catalog = catalog.Catalog
	// Clock returns the database's time without a query: it keeps the offset from clock_timestamp()
	// to this process' monotonic clock.
	Clock = catalog.Clock
	// Config configures a Store.
	Config = catalog.Config
	// Due is how many rows a background job would change now.
	Due = catalog.Due
	// Meter counts the work of this node.
	Meter = catalog.Meter
	// Node is a node that writes, or wrote, its row.
	Node = catalog.Node
	// PauseState says whether a task type is paused, or is ramped up.
	PauseState = catalog.PauseState
	// Place is the place of a row in a list by time.
	Place = catalog.Place
	// PoolStat counts the connections of a pool and the waits for them.
	PoolStat = catalog.PoolStat
	// Precondition is what must be so for a change of something configured to be made.
	Precondition = catalog.Precondition
	// Roll is one generation of the tables of a table set.
	Roll = catalog.Roll
	// StoredTenant is a tenant as its row has it.
	StoredTenant = catalog.StoredTenant
	// StoredType is a task type with its state and its times.
	StoredType = catalog.StoredType
	// Submit submits tasks of a tenant, and returns a result for each in the same order.
	Submit = catalog.Submit
	// Submitted is the result of one submitted task: Err, or what it became.
	Submitted = catalog.Submitted
	// TableSet has the rolled tables that several task types share, or those that one type has for
	// itself, as this node knows them: an immutable snapshot.
	TableSet = catalog.TableSet
	// Tenant is a tenant as this node knows it: an immutable snapshot.
	Tenant = catalog.Tenant
	// Type is a task type as this node knows it: an immutable snapshot.
	Type = catalog.Type
	// TypeKey names a task type among all tenants.
	TypeKey = catalog.TypeKey
	// TypeMeter has the counters of a type.
	TypeMeter = catalog.TypeMeter
	// Wakeups announce that a task of a type is ready, and when it is due: to the dispatcher of this
	// node at once, to those of other nodes by NOTIFY. An announcement may get lost (a crash between
	// COMMIT and NOTIFY); background jobs find such tasks.
	Wakeups = catalog.Wakeups
)

const (
	// AnyETag stands for each ETag.
	AnyETag = catalog.AnyETag
	// JobBatch is the most rows that one transaction of a background job changes.
	JobBatch = catalog.JobBatch
	// PageBytes is about how many bytes of long columns make a page of a list full, however few rows
	// the page has.
	PageBytes = catalog.PageBytes
)

// AuditedCallOf returns the audited call of a context, or nil.
func AuditedCallOf(ctx context.Context) *AuditedCall { return catalog.AuditedCallOf(ctx) }

// ByRoll divides tasks, sorted by roll, into one slice per roll.
func ByRoll[T any](tasks []T, idOf func(T) asyncflow.TaskID) iter.Seq[[]T] {
	return catalog.ByRoll(tasks, idOf)
}

// EndpointETag changes with all that callers set of an endpoint, and with its secrets, but not with
// its health nor its verification.
func EndpointETag(e asyncflow.Endpoint) string { return catalog.EndpointETag(e) }

// IsDataError reports whether Postgres refused the data of a statement, so that the same data would
// be refused again.
func IsDataError(err error) bool { return catalog.IsDataError(err) }

// IsRefused reports whether Postgres refused a statement for want of a right.
func IsRefused(err error) bool { return catalog.IsRefused(err) }

// NewAuditedCall returns an audited call with an id of its own.
func NewAuditedCall(schema string, e asyncflow.AuditEntry) *AuditedCall {
	return catalog.NewAuditedCall(schema, e)
}

// RecordByHand writes an entry for what the command line has just done directly in the database at
// url.
func RecordByHand(ctx context.Context, url string, e asyncflow.AuditEntry) error {
	return catalog.RecordByHand(ctx, url, e)
}

// RolledOn reports whether an error comes from a roll move: a statement met a table that was sealed
// or dropped.
func RolledOn(err error) bool { return catalog.RolledOn(err) }

// WithAuditedCall returns a context whose changes write the entry of an audited call.
func WithAuditedCall(ctx context.Context, a *AuditedCall) context.Context {
	return catalog.WithAuditedCall(ctx, a)
}

// WithPrecondition returns a context for one change, which is made only if p holds.
func WithPrecondition(ctx context.Context, p Precondition) context.Context {
	return catalog.WithPrecondition(ctx, p)
}

// APINodes returns how many of them take requests: at least 1.
func (s *Store) APINodes() int { return s.core.APINodes() }

// CountSubmitted counts new tasks of a type that this node has accepted.
func (s *Store) CountSubmitted(key TypeKey, n int) { s.core.CountSubmitted(key, n) }

// Dispatchers returns how many of them lease tasks, at least 1.
func (s *Store) Dispatchers() int { return s.core.Dispatchers() }

// DryRunForgetAudit counts the entries that ForgetAudit would delete, in all batches.
func (s *Store) DryRunForgetAudit(
	ctx context.Context,
	tenant string,
	retention time.Duration,
) (int, error) {
	return s.core.DryRunForgetAudit(ctx, tenant, retention)
}

// DryRunForgetNodes counts the nodes that have been silent for a day.
func (s *Store) DryRunForgetNodes(ctx context.Context) (int, error) {
	return s.core.DryRunForgetNodes(ctx)
}

// ForgetAudit deletes a batch of entries older than a time, of a tenant's audit or (with "") of the
// one that belongs to no tenant, and returns how many it deleted. No other statement deletes from
// the audit. It runs under the base role: a tenant's role may not delete.
func (s *Store) ForgetAudit(
	ctx context.Context,
	tenant string,
	retention time.Duration,
) (int, error) {
	return s.core.ForgetAudit(ctx, tenant, retention)
}

// ForgetNodes deletes the rows of nodes that have been silent for a day, and returns how many there
// were.
func (s *Store) ForgetNodes(ctx context.Context) (int, error) { return s.core.ForgetNodes(ctx) }

// Joining reports whether this node has no share yet of what the nodes that lease tasks divide
// among them. A node that finds no other has everything at once.
func (s *Store) Joining() bool { return s.core.Joining() }

// ListNodes returns the running nodes, and those that fell silent within the last day, by the time
// of their start.
func (s *Store) ListNodes(ctx context.Context) ([]Node, error) { return s.core.ListNodes(ctx) }

// Listening reports whether this node gets announcements of other nodes now, as far as it knows.
func (s *Store) Listening() bool { return s.core.Listening() }

// Nodes returns how many nodes write their row, including this one: at least 1.
func (s *Store) Nodes() int { return s.core.Nodes() }

// OnFollowUp registers a function that is called with a tenant when FollowUp has something to do
// for it, and with how long that may wait for more. It must not block. Call OnFollowUp before the
// first write.
func (s *Store) OnFollowUp(tell func(tenant string, linger time.Duration)) {
	s.core.OnFollowUp(tell)
}

// PoolStats returns the counts of the two pools.
func (s *Store) PoolStats() []PoolStat { return s.core.PoolStats() }

// QuotasOf returns the quotas that apply to a tenant; in them, 0 is no limit.
func (s *Store) QuotasOf(t StoredTenant) asyncflow.Quotas { return s.core.QuotasOf(t) }

// Record writes the entry of an audited call that has ended, with its outcome, unless a change has
// written it already.
func (s *Store) Record(ctx context.Context, a *AuditedCall) error { return s.core.Record(ctx, a) }

// RecordAll writes the entries of audited calls that have ended, all or none. It skips entries that
// are in the audit already. Entries of a tenant that is gone go to the audit that belongs to no
// tenant.
func (s *Store) RecordAll(ctx context.Context, calls []*AuditedCall) error {
	return s.core.RecordAll(ctx, calls)
}

// Rolls returns the rolls of all table sets of a tenant, by set and position.
func (s *Store) Rolls(ctx context.Context, tenant string) ([]Roll, error) {
	return s.core.Rolls(ctx, tenant)
}

// TasksIn returns about how many tasks a roll has: the rows of a sample of pages, scaled up to the
// size of the table.
func (s *Store) TasksIn(ctx context.Context, set *TableSet, position int) (int64, error) {
	return s.core.TasksIn(ctx, set, position)
}

// TypeOf returns the type of a task, if its roll exists; else CodeNotFound.
func (s *Store) TypeOf(ctx context.Context, tenant string, id asyncflow.TaskID) (*Type, error) {
	return s.core.TypeOf(ctx, tenant, id)
}
