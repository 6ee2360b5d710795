package claims

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// overdue reports whether a new claim's task must not be handed out any more.
func (c *claiming) overdue(l *asyncflow.Lease) bool {
	why, _ := c.t.Overdue(l, c.now)
	return why != ""
}

// readBegun finds out which tasks of new claims had begun in time, although a time to begin is over
// by now. Mostly it has nothing to ask.
func (c *claiming) readBegun(ctx context.Context, conn *postgres.TenantConn) error {
	for range 2 { // of the tasks, and in their stage
		b := &pgx.Batch{}
		for _, a := range c.asks {
			if !a.New {
				continue
			}
			for i := range a.Leases {
				hot.QueueBegun(b, c.t, &a.Leases[i], c.now)
			}
		}
		if b.Len() == 0 {
			return nil
		}
		if err := conn.Send(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
