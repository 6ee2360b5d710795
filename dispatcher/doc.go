// Package dispatcher is the hot path of a node, from a submit to the next stage. It knows
// nothing of HTTP or SQL.
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
//	ledger.go           how many tasks may be in flight, for whom, and why not more
//
// A Committer gathers all that the node writes on this path. A node that only serves the API has
// one, too, but no Dispatcher. report.go has what workers report by themselves.
//
// # Leases
//
// An agenda keeps, for every task type, the time at which there may be something
// to lease: now at the start, the time of the head of its ready table after a
// lease, and what wake-ups tell. A few leasers take the type whose time has come
// first, wait for capacity, and lease as many tasks, up to the type's schedule_limit; a type is
// with one leaser at a time. Nothing is asked of the database while nothing is due.
//
// # How it stops
//
// When the context of Dispatcher.Run ends, no new leases are taken; attempts under way have
// a grace to end; then they are cut off and their tasks go back as lost attempts.
// Leases that were not sent yet are given back without an attempt. Settlements
// are written on a context that outlives all that. Run returns when nothing is
// in flight any more. Committer.Close then waits for what is still to be written.
package dispatcher
