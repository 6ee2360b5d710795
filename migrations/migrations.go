// Package migrations holds the SQL that brings a database to the schema of this version: one set
// for the schema asyncflow, one for the schema of each tenant, and that of a new tenant. Package
// store makes the rolled tables that task types share, or have for themselves.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed asyncflow/*.sql tenant/*.sql
var files embed.FS

//go:embed tenant.sql
var newTenant string

// Asyncflow returns the migrations of the schema asyncflow.
func Asyncflow() fs.FS { return sub("asyncflow") }

// Tenant returns the migrations of a tenant's schema. The names in them are unqualified: they run
// with the search path set to that schema.
func Tenant() fs.FS { return sub("tenant") }

// NewTenant returns what makes all that is in the schema of a new tenant: the same as all
// migrations of Tenant together, as one script.
func NewTenant() string { return newTenant }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return f
}
