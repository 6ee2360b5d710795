// Package turns has what tenants take turns at, so that one with much to do doesn't delay
// the others.
package turns
