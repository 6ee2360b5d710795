package records

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// leaseRow is a row of lease.
type leaseRow struct {
	id  int64
	key *string // the flow key, if the type needs it
}

// leaseKey has the values that leases have in common.
type leaseKey struct {
	TypeToken
	began, until time.Time
	endpoint     string // that they are for; "": any
	keyed        bool   // they have flow keys
	unsent       bool
}

// queueLeases adds the insert of leases to a batch.
func queueLeases(b *pgx.Batch, t *config.TableNames, k leaseKey, rows []leaseRow, node string) {
	common := []any{k.Seq, k.Stage, k.Attempt, k.until, postgres.OrNull(k.endpoint), node, k.began,
		k.Number, postgres.OrNull(k.unsent)}
	if len(rows) == 1 {
		b.Queue(t.SQL(0, insertOneLeaseSQL),
			append(append([]any{rows[0].id}, common...), rows[0].key)...)
		return
	}
	sql := insertLeaseSQL
	args := append([]any{Column(rows, func(r *leaseRow) int64 { return r.id })}, common...)
	if k.keyed {
		sql = insertKeyedLeaseSQL
		args = append(args, postgres.Texts(Column(rows, func(r *leaseRow) *string {
			return r.key
		})))
	}
	b.Queue(t.SQL(0, sql), args...)
}
