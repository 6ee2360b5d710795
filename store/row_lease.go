package store

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// leaseRow is a row of lease.
type leaseRow struct {
	leaseKey
	id    int64
	began time.Time
	key   *string // the flow key, if the type needs it
}

// leaseKey has the values that the leases of a batch mostly have in common.
type leaseKey struct {
	typed
	until    time.Time
	endpoint string // that it is for; "": any
}

// queueLeases adds the insert of leases to a batch.
func queueLeases(b *pgx.Batch, t *tables, rows []leaseRow, node string) {
	ids := column(rows, func(r *leaseRow) int64 { return r.id })
	k := rows[0].leaseKey
	if same(rows, func(r *leaseRow) leaseKey { return r.leaseKey }) &&
		same(rows, func(r *leaseRow) bool { return r.key == nil }) && rows[0].key == nil {
		b.Queue(t.at(0, insertLeaseSQL), ids, k.seq, k.stage, k.attempt, k.until, orNull(k.endpoint),
			node, rows[0].began, k.number)
		return
	}
	b.Queue(t.at(0, insertMixedLeaseSQL),
		column(rows, func(r *leaseRow) int32 { return r.number }), ids,
		column(rows, func(r *leaseRow) int16 { return r.seq }),
		column(rows, func(r *leaseRow) string { return r.stage }),
		column(rows, func(r *leaseRow) int16 { return r.attempt }),
		column(rows, func(r *leaseRow) *moment { return (*moment)(&r.until) }),
		column(rows, func(r *leaseRow) *moment { return (*moment)(&r.began) }),
		column(rows, func(r *leaseRow) *string { return orNull(r.endpoint) }),
		column(rows, func(r *leaseRow) *string { return r.key }), node)
}
