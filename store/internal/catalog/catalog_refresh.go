package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// RefreshEvery bounds the age of the catalog where NOTIFY is lost or off.
const RefreshEvery = time.Second

// Refresh reads the types of all changed tenants. Tenants that can't be read stay as they were,
// without an error.
func (c *Catalog) Refresh(ctx context.Context) error {
	reads, err := c.look(ctx, "", true)
	for _, r := range reads {
		if c.await(ctx, r) != nil {
			err = ctx.Err()
		}
	}
	return postgres.Wrap(err, "Catalog.Refresh")
}

// open is Refresh for the start of a node: it doesn't wait for long. A node with roles that may not
// read a tenant doesn't start.
func (c *Catalog) open(ctx context.Context) error {
	reads, err := c.look(ctx, "", true)
	if err != nil {
		return postgres.Wrap(err, "Catalog.open")
	}
	waiting, cancel := context.WithTimeout(ctx, catalogOpen)
	defer cancel()
	if awaitReads(waiting, reads) != nil {
		c.store.Log.Warn("the configuration of some tenants isn't read yet; starting without them")
	}
	for _, r := range reads {
		// a missing right never comes back by itself
		if !c.IsBehind(r.tenant) && postgres.State(r.failure()) == pgerrcode.InsufficientPrivilege {
			return postgres.Wrap(r.err, "Catalog.open")
		}
	}
	if len(reads) >= catalogMany {
		c.store.Base.Reset()
	}
	return postgres.Wrap(ctx.Err(), "Catalog.open")
}

func awaitReads(ctx context.Context, reads []*catalogRead) error {
	for _, r := range reads {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// follow is Refresh without a wait for the reads.
func (c *Catalog) follow(ctx context.Context) error {
	_, err := c.look(ctx, "", false)
	return postgres.Wrap(err, "Catalog.follow")
}

// RefreshTenant reads a tenant's types if they changed. It returns when they are at least as new as
// the call; CodeUnavailable when they can't be read.
func (c *Catalog) RefreshTenant(ctx context.Context, tenant string) error {
	reads, err := c.look(ctx, tenant, true)
	if err != nil {
		return postgres.Wrap(err, "Catalog.RefreshTenant(%q)", tenant)
	}
	for _, r := range reads { // at most one
		if err := c.await(ctx, r); err != nil {
			return unread(tenant, err)
		}
	}
	return nil
}

// await waits until the types of a read's tenant are at least as new as the look before the
// call. That may take a second read, as the first may have begun before the look.
func (c *Catalog) await(ctx context.Context, r *catalogRead) error {
	k := c.known(r.tenant)
	for {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if now := c.known(r.tenant); k == nil || now == nil || now.version >= k.wanted {
			return nil
		}
		if r.err != nil {
			return r.err
		}
		again := c.begin([]string{r.tenant}, true)
		if len(again) == 0 { // the store is closed
			return nil
		}
		r = again[0]
	}
}

// unread returns the error of a tenant with types that can't be read.
func unread(tenant string, err error) error {
	return &asyncflow.Error{
		Code:       asyncflow.CodeUnavailable,
		Err:        err,
		Op:         "read the configuration of " + tenant,
		Message:    "the tenant's configuration can't be read now; try again",
		RetryAfter: CatalogRetry,
	}
}
