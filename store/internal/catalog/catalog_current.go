package catalog

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A node that was cut off from the database knows an old configuration when it finds the database
// again, and one of the future after a backup was restored. It must not begin tasks by that: the
// type may be paused. So the catalog isn't current from a failed look on, or once a connection has
// reached another server, until a look at all tenants has succeeded and what changed is read, as
// far as it can be. Meanwhile each lease reads its tenant first.

// Current reports whether the catalog is about as new as the database.
func (c *Catalog) Current() bool { return c.compared.Load() == c.serverChanges()+1 }

// noteCompared notes a look at all tenants that began after a number of server changes.
func (c *Catalog) noteCompared(changes uint64, err error) {
	if err != nil {
		c.compared.Store(0)
	} else {
		c.compared.Store(changes + 1)
	}
}

// serverChanges counts how often the server became another one.
func (c *Catalog) serverChanges() (sum uint64) {
	for _, g := range c.store.groups {
		sum += g.ServerChanges()
	}
	return sum
}

// AcquireToLease returns a hot connection for leases of a type. If the catalog isn't current, it
// reads the type anew; the connection is nil if that is paused meanwhile.
func (s *Core) AcquireToLease(
	ctx context.Context, t *config.Type,
) (*postgres.TenantConn, *config.Type, error) {
	for {
		changes := s.Catalog.serverChanges()
		if !s.Catalog.Current() {
			now, err := s.Refreshed(ctx, t)
			if err != nil {
				return nil, t, err
			}
			if now != t && now.Paused() {
				return nil, now, nil
			}
			t = now
		}
		conn, err := s.HotDB(t.Tenant).Acquire(ctx)
		if err != nil || changes == s.Catalog.serverChanges() {
			return conn, t, err
		}
		conn.Release() // it may lead to another server
	}
}
