// Package governance runs the background jobs of a node: it rescues leases that ran out,
// promotes tasks that become due, wakes dispatchers that missed a notification, vacuums busy
// tables, opens and drops rolls, advances operations, submits the tasks of schedules, expires
// idempotency keys, adds up tallies, sends alerts, drops deleted tenants, and deletes the rows of
// old nodes and operations.
//
// Each job is a struct in a file of its name, with run, dryRun, and what else it needs: see
// standardJobs. A job that goes through the tenants keeps visits, which know what wakes the job,
// and until when a tenant may rest.
//
// Every node with the role runs every job. A lock in the database, held for one short transaction
// at a time, keeps two nodes from doing the same work at once. A node that dies holds nothing.
package governance
