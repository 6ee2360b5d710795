package store

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// The words of package hot for callers of the store.

type (
	// Admission decides which tasks a lease takes.
	Admission = hot.Admission
	// Checkpoint is what an attempt leaves for the next attempt of its stage.
	Checkpoint = hot.Checkpoint
	Seen       = hot.Seen
	// Ending is a lease that ends as its settlement says.
	Ending = hot.Ending
	// Extension moves the end of a lease if the lease still stands.
	Extension = hot.Extension
	// InFlight counts the leases of a type by endpoint; "": leases for any endpoint.
	InFlight = hot.InFlight
	// Insertion is a new task on its way into the tables.
	Insertion = hot.Insertion
	// Key is the idempotency key of a new task.
	Key = hot.Key
	// KeyWait says what a transaction does about keys that other transactions hold locked.
	KeyWait = hot.KeyWait
	// LeaseName names a lease of a type.
	LeaseName = hot.LeaseName
	// LimitedLease is the result of a lease of a limited type.
	LimitedLease = hot.LimitedLease
	// Refused are the writes that Postgres refused, from one index to before another one: those of
	// a tenant.
	Refused = hot.Refused
	// Settled is the result of a settlement.
	Settled = hot.Settled
	// Writes holds the changes of one task type in one transaction.
	Writes = hot.Writes
)

const (
	KeysTogether = hot.KeysTogether // wait for a moment in the order of the keys, then fail
	KeysAgain    = hot.KeysAgain    // the same, for longer
	KeysApart    = hot.KeysApart    // take the other keys
	// LeaseMargin is how much longer a lease stands than its stage's timeout: time to send the
	// delivery and to settle its outcome.
	LeaseMargin = hot.LeaseMargin
)

// NewInsertion returns a new task with its place, and a number of the open roll of its type.
func NewInsertion(t *Type, number int64, task *asyncflow.NewTask, now time.Time) Insertion {
	return hot.NewInsertion(t, number, task, now)
}

// IsHeld reports whether an error means that others hold a lock for too long: of a table, or of an
// idempotency key.
func IsHeld(err error) bool { return hot.IsHeld(err) }

// IsMoving reports whether an error passes once a lock does or, where tenants are on workers of
// Citus, once the tenant's move to another one is over. Elsewhere a table that isn't there stays
// away.
func (s *Store) IsMoving(err error) bool {
	return IsHeld(err) || s.core.Distributed() && postgres.IsMoving(err)
}

// OtherOutcome returns the error of a report o for an attempt that ended with another outcome,
// written.
func OtherOutcome(written asyncflow.OutcomeKind, o asyncflow.Outcome) error {
	return hot.OtherOutcome(written, o)
}
