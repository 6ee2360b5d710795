// Package schema names the schemas of a database, brings them up to date, and makes and
// grants the roles that keep tenants apart. The migrations themselves are in package
// migrations.
package schema
