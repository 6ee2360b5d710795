package catalog

import (
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// What NOTIFY carries is seen by every role of the database, and any of them can send it. So
// tenants and types are numbers there: a tenant's is the oid of its schema, a type's the one in the
// rows of its tasks. A node drops numbers that it doesn't know before it keeps anything.

// tenantNumbers are the numbers of the tenants that a node knows.
type tenantNumbers struct {
	slugs   map[uint32]string
	numbers map[string]uint32
}

func (n *tenantNumbers) put(slug string, number uint32) {
	if n.numbers[slug] == number {
		return
	}
	n.forget(slug)
	if number != 0 { // else its schema isn't there
		n.slugs[number] = slug
		n.numbers[slug] = number
	}
}

func (n *tenantNumbers) forget(slug string) {
	if number := n.numbers[slug]; n.slugs[number] == slug {
		delete(n.slugs, number)
	}
	delete(n.numbers, slug)
}

// tenantOf returns the slug of a tenant, and reports whether this node knows its number.
func (c *Catalog) tenantOf(number uint32) (slug string, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	slug, ok = c.numbers.slugs[number]
	return slug, ok
}

// keyOf returns a type, and reports whether this node knows its numbers.
func (c *Catalog) keyOf(tenant uint32, number int32) (key config.TypeKey, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	slug, ok := c.numbers.slugs[tenant]
	if !ok || c.tenants[slug] == nil {
		return key, false
	}
	name, ok := c.tenants[slug].names[number]
	return config.TypeKey{Tenant: slug, Type: name}, ok
}

// numbersOf returns the numbers of a type, and reports whether this node knows it.
func (c *Catalog) numbersOf(key config.TypeKey) (tenant uint32, number int32, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k := c.tenants[key.Tenant]
	if k == nil || k.types[key.Type] == nil {
		return 0, 0, false
	}
	tenant, ok = c.numbers.numbers[key.Tenant]
	return tenant, k.types[key.Type].Number(), ok
}
