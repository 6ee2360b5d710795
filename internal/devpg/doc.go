// Package devpg runs a Postgres server as a child process, for `asyncflow dev` and for tests.
// It runs initdb and postgres directly, without a system service or a wrapper. Package pgfetch
// fetches programs that are not installed.
//
// A data directory holds:
//
//	pgdata/       the cluster; it exists only once initdb has finished
//	password      the password of the superuser asyncflow, made with the cluster
//	postgres.log  what the server says, appended to by every start
//	socket/       the unix socket, when its path is short enough for one
//	lock          says who uses the directory, see below
//
// # Who uses a data directory
//
// Start takes an exclusive flock on the lock file, and the server inherits the open file. All
// processes of a server share it, so the lock is free exactly when the last of them is gone,
// even after a SIGKILL of any of them, a reboot, or a reuse of process ids. Two servers can't
// use the same cluster, and waiting for the lock means waiting for a crashed server's last
// process.
//
// # Life and death
//
// The server runs in its own process group: a Ctrl-C in the terminal reaches only this process,
// which decides when to stop the server. If this process dies without stopping the server, the
// Linux kernel sends the server SIGINT, its fast shutdown. On other systems the server stays
// behind, and the next Start names its pid.
//
// # Root
//
// Postgres refuses to run as root. Started by root, it runs as the owner of an existing
// cluster, or else as the user postgres, or else as nobody. Root keeps the data directory
// itself; only what the server must own goes to that user.
package devpg
