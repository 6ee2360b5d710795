// Package pgtest gives tests a real Postgres. It needs no TestMain and no set-up, and fetches
// Postgres' programs unless they are installed:
//
//	url := pgtest.Database(t, migrations.Up)
//
// A test process starts one server, at the first call, and creates each test's database from a
// template. ASYNCFLOW_TEST_DATABASE_URL names a server to use instead: the URL of any database
// on it, with a role that may create databases.
//
// ASYNCFLOW_TEST_POSTGRES sets the major version to run, 15 to 18; installed programs of other
// versions are ignored. Without it, tests use any installed version. ASYNCFLOW_OFFLINE=true
// forbids to fetch programs.
//
// The server keeps its files in memory if /dev/shm of Linux has 2 GiB free, or else among the
// temporary files.
//
// A test that ends its server starts its own with Server. Nothing of a started server stays
// behind, however the test process ends. An empty cluster stays in the user's cache directory:
// servers are copies of it.
package pgtest
