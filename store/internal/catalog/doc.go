// Package catalog is what all rooms of the store that do something share: the connections, the
// cached configuration of all tenants, locks, the live nodes, and announcements between them.
//
// It uses packages news, config, postgres, schema and lowwater below it. Begin with Core, then
// Catalog.
package catalog
