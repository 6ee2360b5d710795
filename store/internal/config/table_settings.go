package config

// The settings of Postgres for tables, each with the reason. The settings of connections are in
// package postgres.

const (
	// coldTable keeps vacuum away from tables that only get inserts and are dropped whole: it
	// would read all of them again and again, and find nothing.
	coldTable = "autovacuum_vacuum_insert_threshold = -1"

	// hotTable makes autovacuum clean a small, busy table after a number of changes, at full
	// speed, where the background job vacuum doesn't (lease statement after a minute:
	// 28.5 -> 4.8 µs a task). It turns autoanalyze off: an analyze that finds the table empty
	// changes the plans for the worse. Giving pages back would take an exclusive lock.
	hotTable = "vacuum_truncate = off, " +
		"autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, " +
		"autovacuum_vacuum_cost_delay = 0, " +
		"autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000"
)
