// Package dispatcher leases tasks that are due, hands them to a Sender within
// the limits of the node, and settles what came of them. It knows nothing of
// HTTP or SQL.
//
// # How it runs
//
// An agenda keeps, for every task type, the time at which there may be something
// to lease: now at the start, the time of the head of its ready table after a
// lease, and what wake-ups tell. A few leasers take the type whose time has come
// first, wait for free slots, and lease as many tasks as there are slots, up to
// the type's schedule_limit; a type is with one leaser at a time. Each request
// is sent in a goroutine of its own: that of one task, or, to an endpoint with a
// batch, that of several, for which the tasks may have to wait. A task holds its slot
// from its lease until its outcome is settled, so that a node never holds more than
// its capacity. One that goes on with its next stage keeps it. A type that the node
// has no room for is looked at again when slots are given back.
//
// Nothing is asked of the database while nothing is due.
//
// # How it stops
//
// When the context of Run ends, no new leases are taken; attempts under way have
// a grace to end; then they are cut off and their tasks go back as lost attempts.
// Leases that were not sent yet are given back without an attempt. Settlements
// are written on a context that outlives all that. Run returns when nothing is
// under way any more: afterwards nothing is written, and nothing logged.
package dispatcher
