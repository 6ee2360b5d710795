// Package devpg runs a Postgres server of our own as a child process, for
// `asyncflow dev` and for tests. It runs initdb and postgres directly and needs
// neither a system service nor a wrapper. Programs that are not installed are
// fetched by package pgfetch.
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
// Start takes an exclusive flock on the lock file and lets the server inherit
// the open file. All processes of a server share it, so the lock is free
// exactly when the last of them is gone, even after a SIGKILL of any of them,
// a reboot, or a reuse of process ids. Two servers can't meet on one cluster,
// and waiting for the lock is waiting for a crashed server's last process.
//
// # Life and death
//
// The server has a process group of its own: a Ctrl-C in the terminal reaches
// us, and we decide when to stop it. On Linux the kernel sends the server
// SIGINT, its fast shutdown, when we die without stopping it. Elsewhere it stays
// behind then, and the next Start names its pid.
//
// # Root
//
// Postgres refuses to run as root. Started by root, it runs as the owner of an
// existing cluster, else as the user postgres, else as nobody. The data
// directory itself stays root's; only what the server must own is given to it.
package devpg
