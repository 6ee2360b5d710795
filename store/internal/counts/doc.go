// Package counts reads what was counted: statistics and backlogs of task types, the attempts at
// endpoints and by workers, and why tasks wait.
//
// It uses packages hot, records and catalog. Begin with Stats in stats.go.
package counts
