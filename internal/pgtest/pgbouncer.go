package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// PgBouncer is a real PgBouncer in front of a database.
type PgBouncer struct {
	Mode     string // session, transaction or statement
	Servers  int    // the most connections to the server for each database and user
	Prepared int    // max_prepared_statements, which 1.21 and newer know; 0: none

	TakeTurns bool   // idle connections to the server are used in turn (server_round_robin)
	Database  string // where all names of databases lead; "": to the one of that name
}

// pgBouncerPath returns the program: the one that ASYNCFLOW_TEST_PGBOUNCER names, or the
// distribution's, which may be outside of the PATH of a user.
func pgBouncerPath() (string, error) {
	if given := os.Getenv("ASYNCFLOW_TEST_PGBOUNCER"); given != "" {
		return given, nil
	}
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/pgbouncer")
}

var pgBouncerVersion = regexp.MustCompile(`PgBouncer (\d+)\.(\d+)`)

// keepsPrepared reports whether a PgBouncer follows prepared statements in transaction mode.
func keepsPrepared(t testing.TB, program string) bool {
	t.Helper()
	out, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("pgtest: %s --version: %v", program, err)
	}
	m := pgBouncerVersion.FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("pgtest: %s --version says %q", program, out)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > 1 || minor >= 21
}

// Listen starts the PgBouncer until the end of the test, and returns the URL of a database through
// it. The test is skipped if there is no PgBouncer, or none that keeps prepared statements although
// the test asks for them.
func (p PgBouncer) Listen(t testing.TB, rawURL string) string {
	t.Helper()
	program, err := pgBouncerPath()
	if err != nil {
		t.Skip("PgBouncer is not installed")
	}
	if p.Prepared > 0 && !keepsPrepared(t, program) {
		t.Skip("PgBouncer is older than 1.21, which keeps prepared statements")
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for tries := 0; ; tries++ {
		address, err := p.start(t, program, u)
		if err == nil {
			u.Host = address
			return u.String()
		}
		if tries == 5 { // another program took its port
			t.Fatalf("pgtest: %v", err)
		}
	}
}

// ThroughPooler reports whether Ways go through a pooler.
func ThroughPooler() bool { return os.Getenv("ASYNCFLOW_TEST_POOLER") != "" }

// Ways returns the URLs by which the tests of whole calls reach a database: the main one, and one
// for pooled connections. With ASYNCFLOW_TEST_POOLER=session the main one leads through a PgBouncer
// in that mode. With prepared and unprepared there is one for pooled connections, in transaction
// mode with and without prepared statements. Otherwise there is only the main one, and it is
// direct.
func Ways(t testing.TB, rawURL string) (main, pooled string) {
	t.Helper()
	mode := os.Getenv("ASYNCFLOW_TEST_POOLER")
	if mode == "" {
		return rawURL, ""
	}
	program, err := pgBouncerPath()
	if err != nil {
		t.Fatalf("pgtest: ASYNCFLOW_TEST_POOLER is %s: %v", mode, err)
	}
	p := PgBouncer{Mode: "transaction", Servers: 20}
	switch mode {
	case "session":
		p.Mode = mode
		return p.Listen(t, rawURL), ""
	case "prepared":
		if !keepsPrepared(t, program) {
			t.Fatal("pgtest: ASYNCFLOW_TEST_POOLER is prepared: that takes PgBouncer from 1.21 on")
		}
		p.Prepared = 200
	case "unprepared":
	default:
		t.Fatalf("pgtest: ASYNCFLOW_TEST_POOLER is %q, not session, prepared or unprepared", mode)
	}
	return rawURL, p.Listen(t, rawURL)
}

// start starts the program, and returns its address once it listens.
func (p PgBouncer) start(t testing.TB, program string, server *url.URL) (string, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	dir := Dir(t)
	if err := p.configure(dir, port, server, keepsPrepared(t, program)); err != nil {
		return "", err
	}
	args := []string{"-q", filepath.Join(dir, "pgbouncer.ini")}
	if os.Geteuid() == 0 { // it refuses to run as root
		args = append([]string{"-u", unprivileged()}, args...)
	}
	cmd := exec.Command(program, args...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("PgBouncer said:\n%s", said.String())
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			select {
			case <-ended: // another program answers at its port
				return "", fmt.Errorf("PgBouncer ended: %s", said.String())
			case <-time.After(200 * time.Millisecond):
				return address, nil
			}
		}
		select {
		case <-ended:
			return "", fmt.Errorf("PgBouncer ended: %s", said.String())
		case <-ctx.Done():
			return "", err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// configure writes the files of a PgBouncer.
func (p PgBouncer) configure(dir, port string, server *url.URL, knowsPrepared bool) error {
	host, serverPort, err := net.SplitHostPort(server.Host)
	if err != nil {
		return err
	}
	password, _ := server.User.Password()
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	users := quote(server.User.Username()) + " " + quote(password) + "\n"
	more := ""
	if knowsPrepared { // its default depends on the version
		more = fmt.Sprintf("max_prepared_statements = %d\n", p.Prepared)
	}
	if p.TakeTurns {
		more += "server_round_robin = 1\n"
	}
	database := ""
	if p.Database != "" {
		database = " dbname=" + p.Database
	}
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = md5
auth_file = %s
pool_mode = %s
default_pool_size = %d
max_client_conn = 500
%s`, host, serverPort, database, port, filepath.Join(dir, "users.txt"), p.Mode, p.Servers, more)
	if err := os.WriteFile(filepath.Join(dir, "users.txt"), []byte(users), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pgbouncer.ini"), []byte(ini), 0o644)
}

// unprivileged returns the user that programs run as which refuse to run as root.
func unprivileged() string {
	for _, name := range []string{"postgres", "nobody"} {
		if _, err := user.Lookup(name); err == nil {
			return name
		}
	}
	return "nobody"
}
