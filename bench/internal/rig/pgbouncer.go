package rig

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
)

// PgBouncer is a pooler in front of the database of the nodes.
type PgBouncer struct {
	*Process
	URL string // of the database, through it
}

// StartPgBouncer starts a program in front of the server until the end of the rig. prepared is its
// max_prepared_statements; below 0: it doesn't know that setting.
func (r *Rig) StartPgBouncer(
	ctx context.Context, program, mode string, prepared int,
) (*PgBouncer, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(r.postgres.URL(r.database))
	if err != nil {
		return nil, err
	}
	name := r.Path("pgbouncer-" + address)
	if err := configurePgBouncer(name, address, server, mode, prepared); err != nil {
		return nil, err
	}
	args := []string{"-q", name + ".ini"}
	if os.Geteuid() == 0 { // it refuses to run as root
		args = append([]string{"-u", "nobody"}, args...)
		if _, err := user.Lookup("postgres"); err == nil {
			args[1] = "postgres"
		}
	}
	p, err := StartProcess("PgBouncer", exec.Command(program, args...))
	if err != nil {
		return nil, err
	}
	r.stops = append(r.stops, p.stop)
	server.Host = address
	b := &PgBouncer{p, server.String()}
	return b, Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false, nil // it doesn't listen yet
		}
		return true, conn.Close()
	})
}

func configurePgBouncer(name, address string, server *url.URL, mode string, prepared int) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	password, _ := server.User.Password()
	users := fmt.Sprintf("%q %q\n", server.User.Username(), password)
	if err := os.WriteFile(name+".txt", []byte(users), 0o644); err != nil {
		return err
	}
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = md5
auth_file = %s.txt
pool_mode = %s
default_pool_size = 40
max_client_conn = 200
`, server.Hostname(), server.Port(), host, port, name, mode)
	if prepared >= 0 {
		ini += fmt.Sprintf("max_prepared_statements = %d\n", prepared)
	}
	return os.WriteFile(name+".ini", []byte(ini), 0o644)
}

// CPU returns the time that it used.
func (b *PgBouncer) CPU() (time.Duration, error) { return machine.CPU(b.PID()) }
