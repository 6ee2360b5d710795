package store

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// leaseRow is a row of lease.
type leaseRow struct {
	id  int64
	key *string // the flow key, if the type needs it
}

// leaseKey has the values that leases have in common.
type leaseKey struct {
	typed
	began, until time.Time
	endpoint     string // that they are for; "": any
	keyed        bool   // they have flow keys
	unsent       bool
}

// queueLeases adds the insert of leases to a batch.
func queueLeases(b *pgx.Batch, t *tables, k leaseKey, rows []leaseRow, node string) {
	common := []any{k.seq, k.stage, k.attempt, k.until, orNull(k.endpoint), node, k.began, k.number,
		orNull(k.unsent)}
	if len(rows) == 1 {
		b.Queue(t.at(0, insertOneLeaseSQL), append(append([]any{rows[0].id}, common...), rows[0].key)...)
		return
	}
	sql := insertLeaseSQL
	args := append([]any{column(rows, func(r *leaseRow) int64 { return r.id })}, common...)
	if k.keyed {
		sql = insertKeyedLeaseSQL
		args = append(args, texts(column(rows, func(r *leaseRow) *string { return r.key })))
	}
	b.Queue(t.at(0, sql), args...)
}
