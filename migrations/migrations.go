// Package migrations holds the SQL that brings a database to the schema of this version: one set
// for the schema asyncflow, one for the schema of each tenant. Package store makes the
// rolled tables that task types share, or have for themselves.
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
//
// A new schema gets all of them in one transaction, without the parts between "-- +asyncflow
// UpgradeBegin" and "-- +asyncflow UpgradeEnd". Those change only what a schema in use has already,
// or are undone or repeated by a later migration; a schema without them must come out the same. A
// migration with an annotation of goose such as "NO TRANSACTION", and those after it, are applied
// one by one as in any other schema, unless a new schema needs nothing of it.
func Tenant() fs.FS { return sub("tenant") }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return f
}
