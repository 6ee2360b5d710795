// Package store keeps everything in Postgres. It has every SQL statement of asyncflow; its
// callers use domain words only. Package postgres below it has the connections, package
// schema the migrations and roles, package lowwater the marks at which leases begin to look.
//
// A tenant is a schema. Its task types share five tables: task, journal and ready,
// which are rolled by position (task_P, journal_P, ready_P), and lease and wait, which
// are not. A type may have rolled tables of its own (task_T_P, journal_T_P, ready_T_P):
// see TableSet. A task's row and its journal rows are only ever inserted. Its state is the
// table that has its one token row:
//
//	ready  it may be leased at its order_time
//	lease  an attempt is under way
//	wait   it isn't due for a while, or it is blocked
//	none   it is final: the last row of its journal says how it ended
//
// Every transition deletes the token row and inserts the next one in one transaction, so
// the transaction that deleted the row owns the transition. The row has seq, which grows by
// one with every journal row. It fences off an attempt that reports after its lease was lost.
//
// The methods of a Store stand in rooms, with their arrows down: see rooms.go.
package store
