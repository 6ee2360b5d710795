// Package governance does what must be done beside the request path, as cron
// jobs: it rescues leases that ran out, promotes tasks whose time comes, wakes
// dispatchers that missed news, vacuums busy tables, carries on operations, submits
// the tasks of schedules, expires idempotency keys, adds up tallies, and forgets nodes
// and old operations. Every node runs it; a lock in the database, held for one short
// transaction at a time, keeps two of them from doing the same at once, and a node that
// dies holds nothing.
package governance
