// Package migrations holds the SQL that brings a database to the schema of this version: one set
// for the schema asyncflow and one for the schema of each tenant. Package store makes the rolled
// tables that task types share, or keep for themselves.
package migrations

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed asyncflow/*.sql tenant/*.sql
var files embed.FS

// newTenant is what NewTenant returns.
var newTenant = script(Tenant())

// Asyncflow returns the migrations of the schema asyncflow.
func Asyncflow() fs.FS { return sub("asyncflow") }

// Tenant returns the migrations of a tenant's schema. The names in them are unqualified: they run
// with the search path set to that schema.
func Tenant() fs.FS { return sub("tenant") }

// NewTenant returns what makes all that is in the schema of a new tenant: all migrations of Tenant
// in order, as one script.
func NewTenant() string { return newTenant }

// script returns the migrations of a set in order. To Postgres, goose's annotations are comments,
// so there may be no part in a migration that undoes it.
func script(set fs.FS) string {
	names, err := fs.Glob(set, "*.sql") // in order, as their numbers are equally long
	if err != nil {
		panic(err) // the pattern is well formed
	}
	var all strings.Builder
	for _, name := range names {
		data, err := fs.ReadFile(set, name)
		if err != nil {
			panic(err) // the file is embedded above
		}
		all.Write(data)
	}
	return all.String()
}

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return f
}
