// Package postgres opens and watches a node's connections to Postgres. It keeps two kinds of pools,
// gives every statement a deadline on this side, closes connections to a server that fell silent,
// and runs each statement of a tenant under that tenant's role. It knows no table but the ones with
// the names of the roles.
package postgres
