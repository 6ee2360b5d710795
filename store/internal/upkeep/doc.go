// Package upkeep does the work of the background jobs: it rescues lost leases, promotes tasks that
// became due, opens, seals and drops rolls, ticks schedules, folds counts, and forgets what is no
// longer needed.
//
// It uses all packages of rooms but claims. Begin with Jobs in job_overview.go; there is a file for
// each job by its name.
package upkeep
