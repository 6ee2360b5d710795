// Package hot is the path of every task: it submits, leases and settles. It also keeps the order of
// flow keys, the limits of tasks in flight, and the numbers of new tasks.
//
// It uses packages records and catalog. Begin with Commit, which writes a batch of new tasks and
// settlements in one transaction, then Lease.
package hot
