package store

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// The words of package catalog for callers of the store.

type (
	// Catalog holds the configuration of all tenants as this node knows it.
	Catalog = catalog.Catalog
	// Config configures a Store.
	Config = catalog.Config
	// Due is how many rows a background job would change now.
	Due = catalog.Due
	// Node is a node that writes, or wrote, its row.
	Node = catalog.Node
	// PoolStat counts the connections of a pool and the waits for them.
	PoolStat = catalog.PoolStat
	// Submitted is the result of one submitted task: Err, or what it became.
	Submitted = catalog.Submitted
	// TypeMeter holds the counters of a type.
	TypeMeter = catalog.TypeMeter
	// Wakeups announce that a task of a type is ready, and when it is due: to the dispatcher of
	// this node at once, to dispatchers of other nodes by NOTIFY. An announcement may get lost (a
	// crash between COMMIT and NOTIFY); background jobs find such tasks.
	Wakeups = catalog.Wakeups
)

const (
	// JobBatch is the most rows that one transaction of a background job changes.
	JobBatch = catalog.JobBatch
)

// APINodes returns how many of them take requests: at least 1.
func (s *Store) APINodes() int { return s.core.APINodes() }

// CheckKnown refuses capabilities that a running node doesn't know: CodeConflict.
func (s *Store) CheckKnown(ctx context.Context, needed []asyncflow.Capability) error {
	return s.core.CheckKnown(ctx, needed)
}

// CheckKnownLately is CheckKnown as of this node's last look at the nodes. It asks nothing.
func (s *Store) CheckKnownLately(needed ...asyncflow.Capability) error {
	return s.core.CheckKnownLately(needed...)
}

// CountSubmitted counts new tasks of a type that this node accepted.
func (s *Store) CountSubmitted(key TypeKey, n int) { s.core.CountSubmitted(key, n) }

// Dispatchers returns how many of them lease tasks, at least 1.
func (s *Store) Dispatchers() int { return s.core.Dispatchers() }

// DryRunForgetNodes counts the nodes that are silent for a day.
func (s *Store) DryRunForgetNodes(ctx context.Context) (int, error) {
	return s.core.DryRunForgetNodes(ctx)
}

// ForgetNodes deletes the rows of nodes that are silent for a day, and returns how many there were.
func (s *Store) ForgetNodes(ctx context.Context) (int, error) { return s.core.ForgetNodes(ctx) }

// Joining reports whether this node is without a share yet of what the nodes that lease tasks
// divide among them. A node that finds no other gets everything at once.
func (s *Store) Joining() bool { return s.core.Joining() }

// ListNodes returns the running nodes, and nodes that fell silent within the last day, by the time
// of their start.
func (s *Store) ListNodes(ctx context.Context) ([]Node, error) { return s.core.ListNodes(ctx) }

// Listening reports whether this node gets announcements of other nodes now, as far as it knows.
func (s *Store) Listening() bool { return s.core.Listening() }

// Nodes returns how many nodes write their row, including this one: at least 1.
func (s *Store) Nodes() int { return s.core.Nodes() }

// OwnShare returns the part of its new tasks that this node should begin itself: less than 1 if it
// takes requests beside nodes that only dispatch.
func (s *Store) OwnShare() float64 { return s.core.OwnShare() }

// PoolStats returns the counts of the two pools.
func (s *Store) PoolStats() []PoolStat { return s.core.PoolStats() }

// QuotasOf returns the quotas that apply to a tenant; in them, 0 is no limit.
func (s *Store) QuotasOf(t StoredTenant) asyncflow.Quotas { return s.core.QuotasOf(t) }

// Rolls returns the rolls of all table sets of a tenant, by set and position.
func (s *Store) Rolls(ctx context.Context, tenant string) ([]Roll, error) {
	return s.core.Rolls(ctx, tenant)
}

// TasksIn returns about how many tasks are in a roll: the rows of a sample of pages, scaled up to
// the size of the table.
func (s *Store) TasksIn(ctx context.Context, set *TableSet, position int) (int64, error) {
	return s.core.TasksIn(ctx, set, position)
}

// TypeOf returns the type of a task, if its roll exists; else CodeNotFound.
func (s *Store) TypeOf(ctx context.Context, tenant string, id asyncflow.TaskID) (*Type, error) {
	return s.core.TypeOf(ctx, tenant, id)
}
