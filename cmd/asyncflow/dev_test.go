package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// startDev starts asyncflow dev with its data in dir.
func startDev(t *testing.T, dir string, flags ...string) *process {
	t.Helper()
	p := start(t, nil, append([]string{"dev", "--addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0",
		"--data=" + dir}, flags...)...)
	require.NotEmpty(t, p.url, p.said())
	return p
}

func readDevFile(t *testing.T, dir string) devFile {
	t.Helper()
	var f devFile
	raw, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &f))
	return f
}

// postgresPID returns the process id of the dev server's Postgres.
func postgresPID(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "pgdata", "postmaster.pid"))
	require.NoError(t, err)
	return strings.SplitN(string(raw), "\n", 2)[0]
}

func isAlive(pid string) bool { return exec.Command("kill", "-0", pid).Run() == nil }

// asyncflow dev, the first command of the README: samples pass through both stages, Ctrl-C ends
// everything, the next run uses the same data, and a kill -9 leaves no process behind.
func TestDev(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startDev(t, dir)
	require.Eventually(t, func() bool { return strings.Contains(p.said(), "samples tasks=") },
		patience, 20*time.Millisecond)
	assert.Contains(t, p.said(), "samples tasks=8 succeeded=8 thumbnails=16")
	thumbnails, err := filepath.Glob(filepath.Join(dir, "thumbnails", "*.png"))
	require.NoError(t, err)
	assert.Len(t, thumbnails, 16)
	f := readDevFile(t, dir)
	assert.Equal(t, []any{p.url, "dev", p.cmd.Process.Pid}, []any{f.URL, f.Tenant, f.PID})
	c, err := client.New(f.URL, f.Token)
	require.NoError(t, err)
	list, err := c.List(t.Context(), client.ListParams{Type: "thumbnails"})
	require.NoError(t, err)
	assert.Len(t, list.Data, 8)
	assert.Equal(t, []int{200, 403}, []int{p.status(f.AdminToken, "/v1/governance"),
		p.status(f.Token, "/v1/governance")})
	assert.Equal(t, 403, p.status(f.AdminToken, "/v1/task-types"))
	checkOperatorOfDev(t, dir)
	runCommandsForOperators(t, dir)
	postgres := postgresPID(t, dir)
	require.True(t, isAlive(postgres))
	p.signal(syscall.SIGINT)
	assert.Equal(t, 0, p.wait(), p.said())
	assert.False(t, isAlive(postgres))
	assert.NoFileExists(t, filepath.Join(dir, "dev.json"))

	p = startDev(t, dir)
	require.Eventually(t,
		func() bool { return strings.Contains(p.said(), "samples tasks=8 succeeded=8") }, patience,
		20*time.Millisecond)
	c, err = client.New(p.url, f.Token)
	require.NoError(t, err)
	list, err = c.List(t.Context(), client.ListParams{Type: "thumbnails"})
	require.NoError(t, err, "a token of the last run is still good")
	samples := slices.DeleteFunc(list.Data,
		func(task client.Task) bool { return task.RerunOf != "" }) // of documents' commands
	assert.Len(t, samples, 16, "the data was kept")
	endpoints, err := c.Endpoints(t.Context(), "thumbnails")
	require.NoError(t, err)
	assert.Len(t, endpoints, 2, "endpoints of the last run are gone")
	postgres = postgresPID(t, dir)
	p.kill()
	require.Eventually(t, func() bool { return !isAlive(postgres) }, patience, 20*time.Millisecond)
}

// checkOperatorOfDev checks that operators' commands find the dev server in a directory, unless
// they are for another one.
func checkOperatorOfDev(t *testing.T, dir string) {
	t.Helper()
	env := map[string]string{"ASYNCFLOW_DATA": dir}
	url := readDevFile(t, dir).URL
	for _, args := range [][]string{{"tenants", "create", "other"}, {"governance", "status"},
		{"keys", "status"}, {"migrate", "status"}, {"nodes"}, {"types", "list"}} {
		r := runCLI(t, env, args...)
		assert.Zero(t, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	}
	r := runCLI(t, env, "tenants", "list")
	assert.Equal(t, "asyncflow: using the database of the dev server at "+url+"\n", r.stderr)
	r = runCLI(t, env, "token", "create", "--tenant", "other")
	assert.Contains(t, r.stderr, "signing with the key of the dev server at "+url)
	env["ASYNCFLOW_TOKEN"], env["ASYNCFLOW_URL"] = strings.TrimSpace(r.stdout), url
	assert.Zero(t, runCLI(t, env, "types", "list").code, "the token is good")
	assert.Zero(t, runCLI(t, env, "tenants", "list").code)
	env["ASYNCFLOW_URL"] = "http://127.0.0.1:1"
	for _, args := range [][]string{{"tenants", "list"}, {"token", "create", "--tenant", "other"}} {
		assert.Equal(t, exitUsage, runCLI(t, env, args...).code, "%v of another server", args)
	}
}

// A second dev server on the same data names the first one and says what to do, without harm to
// the first.
func TestSecondDev(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	first := startDev(t, dir, "--no-samples")
	pid := strconv.Itoa(first.cmd.Process.Pid)
	taken := strings.TrimPrefix(first.url, "http://")
	for name, addr := range map[string]string{"port of its own": "127.0.0.1:0",
		"same port": taken} {
		second := start(t, nil, "dev", "--addr="+addr, "--worker-addr=127.0.0.1:0", "--data="+dir)
		assert.Equal(t, exitFailed, second.wait(), name)
		for _, says := range []string{"another asyncflow dev", dir, first.url, "pid " + pid,
			"kill -INT " + pid,
			"--data and --addr"} {
			assert.Contains(t, second.said(), says, name)
		}
		assert.NotContains(t, second.said(), postgresPID(t, dir), "%s: nobody is to stop Postgres",
			name)
	}
	assert.Equal(t, 200, first.status(readDevFile(t, dir).Token, "/v1/task-types"))
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Tables that a developer creates are not in asyncflow's schemas.
func TestTablesOfADeveloper(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	startDev(t, dir, "--no-samples")
	conn := connectTo(t, readDevFile(t, dir).DatabaseURL)

	_, err := conn.Exec(t.Context(), "CREATE TABLE orders (id int)")

	require.NoError(t, err)
	var schema string
	find := "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'orders'"
	require.NoError(t, conn.QueryRow(t.Context(), find).Scan(&schema))
	require.Equal(t, "public", schema)
}

// A password with any characters can be given beside the URL, as in docker-compose.yml.
func TestPasswordBesideTheURL(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	const password = `p@ss:/?#[]%41&= '"\$+`
	conn := connectTo(t, server.URL("postgres"))
	_, err := conn.Exec(t.Context(), "CREATE DATABASE any_password")
	require.NoError(t, err)
	quoted := "'" + strings.ReplaceAll(password, "'", "''") + "'"
	_, err = conn.Exec(t.Context(), "CREATE ROLE compose SUPERUSER LOGIN PASSWORD "+quoted)
	require.NoError(t, err)
	url := fmt.Sprintf("postgres://compose@127.0.0.1:%d/any_password", server.Config().Port)
	env := append(nodeEnv(url), "PGPASSWORD="+password)

	for _, command := range []string{"migrate up", "tenants create demo"} {
		p := start(t, env, strings.Fields(command)...)
		require.Zero(t, p.wait(), "%s: %s", command, p.said())
	}
	node := start(t, env, "serve")
	require.NotEmpty(t, node.url, node.said())
	require.Equal(t, 200, node.status("", "/readyz"))
	wrong := start(t, append(nodeEnv(url), "PGPASSWORD=other"), "serve")
	require.Equal(t, exitUnavailable, wrong.wait())
}

// The lines that dev prints must work when pasted.
func TestDevTour(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is needed: apt-get install curl")
	}
	dir := pgtest.Dir(t)
	var stdout bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	printed := &signalWriter{w: &stdout, at: "limit=5", seen: make(chan struct{})}
	go func() {
		ended <- realMain(ctx, []string{"dev", "--addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0",
			"--data=" + dir}, printed, t.Output(), os.LookupEnv)
	}()
	<-printed.seen
	first := regexp.MustCompile(`^\s*The console: (http://\S+)\n`)
	console := first.FindStringSubmatch(stdout.String())
	require.NotNil(t, console, "its address comes first: %s", stdout.String())
	assert.Equal(t, devTenant, sessionAt(t, console[1]).Tenant)
	script := regexp.MustCompile(`(?s)export.*`).FindString(stdout.String())
	out, err := exec.Command("bash", "-ec", "set -o pipefail\n"+script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := string(out)
	assert.Contains(t, text, `"status":"succeeded"`)
	assert.Contains(t, text, `"outcome":"done"`)
	assert.Contains(t, text, `"status":"pending"`)
	assert.Contains(t, text, `"data":[`)
	assert.NotContains(t, text, `"code":`)
	stop()
	assert.Equal(t, 0, <-ended)
}

// sessionAt returns the session that a browser on this machine finds at a console.
func sessionAt(t *testing.T, console string) (s struct {
	LoggedIn bool `json:"logged_in"`
	Tenant   string
}) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, console+"/session", nil)
	require.NoError(t, err)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s
}

// signalWriter closes seen once a text is written.
type signalWriter struct {
	w    *bytes.Buffer
	at   string
	seen chan struct{}
}

func (s *signalWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if strings.Contains(string(p), s.at) {
		close(s.seen)
	}
	return n, err
}

// A failure at the start is one clear line that says what to do.
func TestStartupErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { taken.Close() })
	url := database(t)
	empty := pgtest.Database(t, nil)
	wrongPassword := regexp.MustCompile(`:[^:@/]+@`).ReplaceAllString(url, ":wrong@")
	noDatabase := regexp.MustCompile(`/[^/?]+(\?|$)`).ReplaceAllString(url, "/nowhere$1")
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says []string
	}{
		"no database": {nodeEnv("postgres://u:p@127.0.0.1:1/x"), []string{"serve"}, exitUnavailable,
			[]string{"127.0.0.1:1", "DATABASE_URL"}},
		"wrong password": {nodeEnv(wrongPassword), []string{"serve"}, exitUnavailable,
			[]string{"password", "DATABASE_URL"}},
		"unknown name": {nodeEnv(noDatabase), []string{"serve"}, exitUnavailable,
			[]string{"no such database"}},
		"no schema": {nodeEnv(empty), []string{"serve"}, exitUnavailable,
			[]string{"asyncflow migrate up"}},
		"not a URL": {nodeEnv("my database"), []string{"serve"}, exitUnavailable,
			[]string{"DATABASE_URL", "postgres://"}},
		"no DATABASE_URL": {nodeEnv("")[1:], []string{"serve"}, exitUsage, []string{"DATABASE_URL"}},
		"port taken": {nodeEnv(url), []string{"serve", "--listen=" + taken.Addr().String()},
			exitUnavailable, []string{taken.Addr().String(), "port", "address with --listen"}},
		"admin port taken": {nodeEnv(url), []string{"serve", "--listen=127.0.0.1:0",
			"--admin-listen=" + taken.Addr().String()}, exitUnavailable,
			[]string{"address with --admin-listen"}},
		"bad address": {nodeEnv(url), []string{"serve", "--listen=here"}, exitUsage,
			[]string{"--listen", "here", ":8080"}},
		"bad flag": {nodeEnv(url), []string{"serve", "--concurency=3"}, exitUsage,
			[]string{"--concurency", "--concurrency"}},
		"bad number": {nodeEnv(url), []string{"serve", "--concurrency=-5"}, exitUsage,
			[]string{"--concurrency", "-5"}},
		"bad pool": {nodeEnv(url), []string{"serve", "--pool=0"}, exitUsage,
			[]string{"--pool", "2 to"}},
		"bad grace": {nodeEnv(url), []string{"serve", "--grace=-1s"}, exitUsage,
			[]string{"--grace", "1h"}},
		"sample secret": {append(nodeEnv(url), "ASYNCFLOW_SECRET="+sampleSecret+testSecret,
			"ASYNCFLOW_ALLOW_HTTP=0"), []string{"serve"}, exitUsage,
			[]string{"ASYNCFLOW_SECRET is a sample that everyone knows"}},
		"sample JWT secret": {append(nodeEnv(url), "ASYNCFLOW_JWT_SECRET="+sampleSecret+testSecret,
			"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS=0"), []string{"serve"}, exitUsage,
			[]string{"ASYNCFLOW_JWT_SECRET is a sample that everyone knows"}},
		"bad drain delay": {nodeEnv(url), []string{"serve", "--drain-delay=-1s"}, exitUsage,
			[]string{"--drain-delay is -1s; it must be 0s to 1h"}},
		"bad allow list": {nodeEnv(url), []string{"serve", "--egress-allow=*,10.0.0.0/99"}, exitUsage,
			[]string{"--egress-allow", `"10.0.0.0/99"`}},
		"too wide a list": {nodeEnv(url), []string{"serve", "--egress-allow=0.0.0.0/0"}, exitUsage,
			[]string{"--egress-allow", `"0.0.0.0/0"`, "/8"}},
		"bad deny list": {append(nodeEnv(url), "ASYNCFLOW_EGRESS_DENY=a.example.com,b..c:22"),
			[]string{"serve"}, exitUsage, []string{"--egress-deny", `"b..c:22"`}},
		"bad connections": {nodeEnv(url), []string{"serve", "--max-connections=0"}, exitUsage,
			[]string{"--max-connections", "1 to"}},
		"bad per address": {nodeEnv(url), []string{"serve", "--max-connections-per-ip=-1"}, exitUsage,
			[]string{"--max-connections-per-ip", "0 to"}},
		"bad anonymous": {nodeEnv(url), []string{"serve", "--max-connections=5",
			"--max-anonymous-connections=6"}, exitUsage,
			[]string{"--max-anonymous-connections is 6; it must be 0 to 5"}},
		"bad streams": {nodeEnv(url), []string{"serve", "--max-streams=0"}, exitUsage,
			[]string{"--max-streams", "1 to"}},
		"bad share": {nodeEnv(url), []string{"serve", "--max-streams=5",
			"--max-streams-per-tenant=6"}, exitUsage, []string{"--max-streams-per-tenant", "0 to 5"}},
		"no body memory": {nodeEnv(url), []string{"serve", "--max-body-memory=1000"}, exitUsage,
			[]string{"--max-body-memory", "67108864 to"}},
		"bad body share": {nodeEnv(url), []string{"serve", "--max-body-memory-per-tenant=1"}, exitUsage,
			[]string{"--max-body-memory-per-tenant", "16777216 to 134217728"}},
		"bad port": {nodeEnv(url), []string{"serve", "--listen=:99999"}, exitUsage,
			[]string{":99999"}},
		"bad role": {nodeEnv(url), []string{"serve", "--roles=api,janitor"}, exitUsage,
			[]string{"janitor", "governance"}},
		"short secret": {append(nodeEnv(url), "ASYNCFLOW_SECRET=short"), []string{"serve"}, exitUsage,
			[]string{"ASYNCFLOW_SECRET", "32"}},
		"no JWT key": {append(nodeEnv(url), "ASYNCFLOW_JWT_SECRET="), []string{"serve"}, exitUsage,
			[]string{"ASYNCFLOW_JWT_SECRET"}},
		"short JWT key": {append(nodeEnv(url), "ASYNCFLOW_JWT_SECRET=short"), []string{"serve"},
			exitUsage, []string{"ASYNCFLOW_JWT_SECRET", "32"}},
		"no issuers file": {append(nodeEnv(url), "ASYNCFLOW_JWT_ISSUERS_FILE=/does/not/exist"),
			[]string{"serve"}, exitUsage, []string{"ASYNCFLOW_JWT_ISSUERS_FILE", "no such file"}},
		"no key file": {append(nodeEnv(url), "ASYNCFLOW_JWT_SECRET=",
			"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE=/does/not/exist"), []string{"serve"}, exitUsage,
			[]string{"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE", "no such file"}},
		"two kinds alike": {append(nodeEnv(url), "ASYNCFLOW_JWT_ADMIN_TYPE=at+jwt"), []string{"serve"},
			exitUsage, []string{"ASYNCFLOW_JWT_ADMIN_TYPE"}},
		"no Postgres": {nil, []string{"dev", "--pg-bin=" + t.TempDir(), "--addr=127.0.0.1:0",
			"--data=" + pgtest.Dir(t)}, exitUnavailable, []string{"initdb"}},
		"dev, port taken": {nil, []string{"dev", "--addr=" + taken.Addr().String(),
			"--data=" + pgtest.Dir(t)}, exitUnavailable, []string{"port", "address with --addr"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c.env, c.args...)
			assert.Equal(t, c.code, p.wait(), p.said())
			_, line, ok := strings.Cut(p.said(), "asyncflow: ")
			require.True(t, ok, p.said())
			assert.Equal(t, 0, strings.Count(strings.TrimSpace(line), "\n"), "one line: %s", line)
			for _, word := range c.says {
				assert.Contains(t, line, word)
			}
		})
	}
}

// The samples in docker-compose.yml are the ones that serve refuses.
func TestSampleSecrets(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	samples := regexp.MustCompile(`ASYNCFLOW_\w*SECRET:-([^}]+)\}`).FindAllSubmatch(text, -1)
	require.NotEmpty(t, samples)
	for _, m := range samples {
		require.True(t, strings.HasPrefix(string(m[1]), sampleSecret), "%s", m[1])
	}
}
