// Package upkeep does the work of the background jobs: it rescues lost leases, promotes tasks that
// have become due, opens, seals and drops rolls, ticks schedules, folds counts, and forgets what is
// no longer needed.
//
// It uses all packages of rooms but claims. Begin with Jobs in job_overview.go; each job has a file
// of its name.
package upkeep
