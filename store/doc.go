// Package store keeps everything in Postgres: it holds every SQL statement of
// asyncflow, takes domain words and hands them out.
//
// A tenant is a schema. A task type has five tables: task, journal and ready,
// which are rolled by position (task_T_P, journal_T_P, ready_T_P), and lease
// and wait, which are not (lease_T, wait_T). A task's row and its journal rows
// are only ever inserted; where the task stands is told by which table holds its
// one token row:
//
//	ready  it may be leased at its order_time
//	lease  an attempt is under way
//	wait   it isn't due for a while, or something holds it back
//	none   it is final: the last row of its journal says how
//
// Every transition deletes the token row and inserts what follows in one
// transaction, so whoever deleted the row owns the transition. The row carries
// seq, which grows by one with every journal row: the fence against an attempt
// that comes back after its lease was lost.
package store
