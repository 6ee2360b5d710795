package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// How the catalog is kept current: a look reads the versions of all tenants, or of one, and the
// rows of changed tenants. These rows are in the schema asyncflow, where no tenant has locks. Then
// each tenant with types of another version is read in a goroutine of its own, a few at a time, so
// that a slow or locked tenant delays no other. A read that fails is tried again after
// CatalogRetry.

const (
	// catalogLock bounds how long a read waits for a lock, catalogTime the whole read.
	catalogLock = 500 * time.Millisecond
	catalogTime = 15 * time.Second
	// CatalogRetry is the pause after a failed read, unless a call asks for the tenant.
	CatalogRetry = 3 * time.Second
	// catalogOpen bounds how long a starting node waits for all tenants.
	catalogOpen = 10 * time.Second
	// catalogMany is the number of tenants from which on a starting node closes the connections
	// that have read them: each of these backends keeps some 65 kB for each tenant.
	catalogMany = 100
)

// catalogRead is a read of a tenant's types that is under way.
type catalogRead struct {
	tenant string
	done   chan struct{}
	err    error // once done
}

// failedRead says since when a tenant's types can't be read, and when to try again.
type failedRead struct{ since, again time.Time }

// failure returns why a read failed; nil while it is under way.
func (r *catalogRead) failure() error {
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}

// begin begins to read tenants, and returns their reads, also reads that were under way. Without
// asked it leaves out tenants with a read that failed a moment ago. Tenants that couldn't be
// migrated a moment ago are left out in any case.
func (c *Catalog) begin(tenants []string, asked bool) (reads []*catalogRead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tenant := range tenants {
		r := c.underway[tenant]
		if r == nil {
			k := c.tenants[tenant]
			rests := !asked || k != nil && k.behind
			if rests && time.Now().Before(c.failed[tenant].again) || c.reading.Err() != nil {
				continue
			}
			r = &catalogRead{tenant: tenant, done: make(chan struct{})}
			c.underway[tenant] = r
			c.reads.Go(func() { c.run(r, tenant) })
		}
		reads = append(reads, r)
	}
	return reads
}

// readCurrent reads a tenant's types once the tenant's schema is current.
func (c *Catalog) readCurrent(tenant string) (typesRead, error) {
	if err := c.bringUp(tenant); err != nil {
		return typesRead{}, err
	}
	return c.readTypesOf(tenant)
}

// run reads a tenant's types and takes them over, once the tenant's schema is current. If the
// tenant changed meanwhile, it begins another read.
func (c *Catalog) run(r *catalogRead, tenant string) {
	read, err := c.readCurrent(tenant)
	r.err = err
	changed := c.adopt(tenant, read, err)
	close(r.done)
	if err != nil {
		return
	}
	c.store.Wakeups.listeners.TellChanged(tenant)
	if changed {
		c.begin([]string{tenant}, false)
	}
}

// typesRead are the types and table sets of a tenant, at least of a version.
type typesRead struct {
	version int64
	types   map[string]*config.Type
	sets    map[string]*config.TableSet
}

// readTypesOf waits for a slot and reads a tenant's types.
func (c *Catalog) readTypesOf(tenant string) (read typesRead, err error) {
	if err := c.slots.Acquire(c.reading, 1); err != nil {
		return read, err
	}
	defer c.slots.Release(1)
	ctx, cancel := context.WithTimeout(c.reading, catalogTime)
	defer cancel()
	if k := c.known(tenant); k != nil {
		read.version = k.wanted
	}
	err = pgx.BeginFunc(ctx, c.store.DB(tenant), func(tx pgx.Tx) error {
		// Citus passes this on to the worker.
		_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+catalogLock.String()+`'`)
		if err != nil {
			return err
		}
		read.types, read.sets, err = config.ReadTypes(ctx, postgres.Unprepared{Q: tx}, tenant)
		return err
	})
	return read, err
}

// adopt keeps a tenant's types, or the error of their read, and reports whether the tenant
// changed since.
func (c *Catalog) adopt(tenant string, read typesRead, err error) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.underway, tenant)
	k := c.tenants[tenant]
	if k == nil { // it is gone
		return false
	}
	if err != nil {
		c.noteFailure(tenant, err)
		return false
	}
	if f, ok := c.failed[tenant]; ok {
		c.store.Log.Info("the configuration of a tenant is read again", "tenant", tenant,
			"after", time.Since(f.since).Round(time.Millisecond))
		delete(c.failed, tenant)
	}
	for name, t := range read.types {
		read.types[name] = config.WithSuspended(t, k.tenant.Suspended)
	}
	next := *k
	next.types = read.types
	next.sets = read.sets
	next.version = read.version
	next.names = make(map[int32]string, len(read.types))
	for name, t := range read.types {
		next.names[t.Number()] = name
	}
	c.tenants[tenant] = &next
	return next.version != next.wanted
}

// noteFailure logs once that a tenant can't be read. The caller holds mu.
func (c *Catalog) noteFailure(tenant string, err error) {
	now := time.Now()
	f, again := c.failed[tenant]
	if c.reading.Err() != nil {
		return
	}
	behind := c.tenants[tenant].behind
	switch {
	case again:
	case behind:
		c.store.Log.Error("can't migrate the schema of a tenant; this node does nothing for it",
			"tenant", tenant, "error", err)
	default:
		c.store.Log.Warn("can't read the configuration of a tenant; its last one stands",
			"tenant", tenant, "error", err)
	}
	if !again {
		f.since = now
	}
	if f.again = now.Add(CatalogRetry); behind {
		f.again = now.Add(behindRetry)
	}
	c.failed[tenant] = f
}
