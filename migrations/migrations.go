// Package migrations holds the SQL that brings a database to the shape that
// this version needs: one set for the schema asyncflow, one for the schema of
// each tenant. The tables of a task type are made by package store when the
// type is.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed asyncflow/*.sql tenant/*.sql
var files embed.FS

// Asyncflow returns the migrations of the schema asyncflow.
func Asyncflow() fs.FS { return sub("asyncflow") }

// Tenant returns the migrations of a tenant's schema. Their names are
// unqualified: they run with the search path set to that schema.
func Tenant() fs.FS { return sub("tenant") }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return f
}
