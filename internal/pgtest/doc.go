// Package pgtest gives tests a real Postgres. It needs no TestMain and no
// set-up; Postgres' programs are fetched unless they are installed:
//
//	url := pgtest.Database(t, migrations.Up)
//
// A test process starts one server, at the first call, and makes each test's
// database from a template. ASYNCFLOW_TEST_DATABASE_URL names a server to use
// instead, by the address of any database on it and with a role that may create
// databases.
//
// ASYNCFLOW_TEST_POSTGRES names the major version to run, 15 to 18: programs of another
// one that are installed are passed over. Without it, whatever is installed is run.
// ASYNCFLOW_OFFLINE=true refuses to fetch programs.
//
// Servers of ours keep their files in memory while Linux has 2 GiB for them in
// /dev/shm, else among the temporary files.
//
// A test that ends its server has one of its own by Server. Nothing of a server
// of ours stays behind, however the test process ends.
package pgtest
