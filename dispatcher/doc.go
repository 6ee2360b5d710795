// Package dispatcher is the hot path of a node, from a submit to the next stage. It uses neither
// HTTP nor SQL.
//
// # How a task passes
//
// Read it in this order:
//
//	submit.go           Committer.Submit gives new tasks their ids, and asks for capacity
//	committer_write.go  Committer.commit writes them with everything else, in one transaction
//	lease.go            tasks that stand in line are leased when there is capacity
//	deliver.go          tasks are sent, each in a goroutine of the worker pool
//	settle.go           their outcomes are written, and they go on with their next stage
//	capacity.go         how many tasks of a type may be in flight, and why not more
//
// What needs no SQL and no other part is in packages of its own: internal/agenda, internal/batch,
// internal/ledger, internal/pool, internal/rates and internal/slots.
//
// A Committer gathers all writes of the node on this path. A node that only serves the API runs
// one, too, but no Dispatcher. report.go handles the reports of workers.
//
// # Leases
//
// An agenda keeps, for every task type, the time at which there may be something to lease: now at
// the start, the time of the head of its ready table after a lease, or the time in a wake-up. A few
// leasers take the type that is due first, wait for capacity, and lease that many tasks, up to the
// type's schedule_limit. A type is with one leaser at a time. While nothing is due, no statement
// runs.
//
// # How it stops
//
// When the context of Dispatcher.Run ends, the node takes no new leases. Attempts under way get a
// grace to end; then they are cut off and their tasks go back as lost attempts. Leases that were
// not sent yet are given back without an attempt. Settlements are written on a context that
// outlives all that. Run returns when nothing is in flight. Committer.Close then waits for the
// remaining writes.
package dispatcher
