// Package catalog is the floor of the store: what all rooms share. It has the connections, the
// database's clock, the cached configuration of tenants and task types, the names of their tables,
// locks, audited calls, and the news between nodes.
//
// It uses packages postgres, schema and lowwater below it, and no room. Begin with Core, then Type
// and TableSet: most methods of the rooms take a Type, which says in which tables its tasks are.
package catalog
