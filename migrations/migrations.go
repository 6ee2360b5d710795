// Package migrations holds the SQL that brings a database to the schema of this version: one set
// for the schema asyncflow, one for the schema of each tenant. Package store makes the tables of a
// task type when it makes the type.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed asyncflow/*.sql tenant/*.sql
var files embed.FS

// Asyncflow returns the migrations of the schema asyncflow.
func Asyncflow() fs.FS { return sub("asyncflow") }

// Tenant returns the migrations of a tenant's schema. The names in them are unqualified: they run
// with the search path set to that schema.
func Tenant() fs.FS { return sub("tenant") }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return f
}
