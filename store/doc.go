// Package store keeps everything in Postgres. Every SQL statement of asyncflow is in it; its
// callers use domain words only.
//
// A tenant is a schema. Its task types share five tables: task, journal and ready,
// which are rolled by position (task_P, journal_P, ready_P), and lease and wait, which are not. A
// type may use rolled tables of its own (task_T_P, journal_T_P, ready_T_P): see TableSet. A task's
// row and its journal rows are only ever inserted. Its state is the table of its one token row:
//
//	ready  it may be leased at its order_time
//	lease  an attempt is under way
//	wait   it isn't due for a while, or it is blocked
//	none   it is final: the last row of its journal says how it ended
//
// Every transition deletes the token row and inserts the next one in one transaction, so the
// transaction that deleted the row owns the transition. A column of the row is seq, which grows by
// one with every journal row. It fences off an attempt that reports after its lease was lost.
//
// # Rooms
//
// The methods of a Store stand in packages below internal, its rooms: a caller writes
// store.Cancel, and a reader looks into the room. A room uses the rooms below it, and none above
// or beside it:
//
//	store
//	upkeep                     the background jobs: rescue, promote, rolls, schedules' ticks
//	claims   tasks   settings  what workers, callers and owners ask for
//	trees    counts            dependencies, fan-outs, votes; statistics
//	hot                        submit, lease, settle; flow keys
//	records  audit             the rows of the tables and the hot statements; audited changes
//	catalog                    connections, cached configuration, wake-ups: what all rooms share
//	news                       the database's clock, and news that wait for their reader
//	config                     tenants, endpoints, task types, and where their tables are
//	postgres schema lowwater   Postgres' pools and roles, migrations, where leases begin to look
//
// Each room defines a type, which a Store embeds: what callers may call is an exported method of
// it. What only other rooms call is a function. This package gives a name to each exported word of
// a room, so that there is one way to name it: store.Type, not config.Type.
package store
