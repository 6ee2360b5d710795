package main

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// composition is docker-compose.yml, run without Docker.
type composition struct {
	t        *testing.T
	text     string
	Services map[string]composed
	hosts    []string // pairs of an address in the file and the one that stands for it here
	path     string   // a folder with the program, as asyncflow
}

// composed is what the test needs of a service.
type composed struct {
	Command     []string
	Environment map[string]string
	DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
}

func readComposition(t *testing.T) *composition {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	c := &composition{t: t, text: string(text), path: t.TempDir()}
	require.NoError(t, yaml.Unmarshal(text, c))
	script := "#!/bin/sh\n" + beAsyncflow + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(c.path, "asyncflow"), []byte(script), 0o755))
	return c
}

var composeVariable = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)

// value returns a text of the file as Docker gives it to a container, with all variables unset, and
// with the addresses of this machine.
func (c *composition) value(text string) string {
	text = composeVariable.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, "$$", "$")
	return strings.NewReplacer(c.hosts...).Replace(text)
}

// environment returns the variables of a service.
func (c *composition) environment(service string) map[string]string {
	require.Contains(c.t, c.Services, service)
	env := map[string]string{}
	for name, value := range c.Services[service].Environment {
		env[name] = c.value(value)
	}
	return env
}

// startPostgres starts Postgres with the settings, the user and the database of the service.
func (c *composition) startPostgres() {
	settings := map[string]string{}
	for _, word := range c.Services["postgres"].Command {
		if name, value, ok := strings.Cut(word, "="); ok {
			settings[name] = value
		}
	}
	server := pgtest.Server(c.t, devpg.Config{Settings: settings})
	env := c.environment("postgres")
	require.NoError(c.t, server.EnsureDatabase(c.t.Context(), env["POSTGRES_DB"]))
	// The servers of tests are asyncflow's already; only the password is another.
	require.Equal(c.t, "asyncflow", env["POSTGRES_USER"])
	_, err := connectTo(c.t, server.URL("postgres")).Exec(c.t.Context(),
		"ALTER ROLE asyncflow PASSWORD '"+env["POSTGRES_PASSWORD"]+"'")
	require.NoError(c.t, err)
	address := regexp.MustCompile(`@([^/]+)/`).FindStringSubmatch(server.URL("postgres"))
	require.NotNil(c.t, address)
	c.hosts = append(c.hosts, "postgres:5432", address[1])
}

// setUp runs a service to its end, as the target setup of the Dockerfile does.
func (c *composition) setUp(service string) {
	c.t.Helper()
	script := c.value(strings.Join(c.Services[service].Command, " "))
	c.run(c.environment(service), "/bin/sh", "-euc", script)
}

// run runs a command in the project's folder, and returns what it prints.
func (c *composition) run(env map[string]string, command ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = "../.."
	cmd.Env = append(pairs(env), "PATH="+c.path+":"+os.Getenv("PATH"),
		"HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(c.t, err, "%s: %s", command, &stderr)
	return string(out)
}

// startThumbnails builds and starts the sample worker.
func (c *composition) startThumbnails() {
	dir := c.t.TempDir()
	program := filepath.Join(dir, "thumbnails")
	build := exec.CommandContext(c.t.Context(), "go", "build", "-buildvcs=false", "-o", program,
		"../../examples/thumbnails/cmd/thumbnails")
	out, err := build.CombinedOutput()
	require.NoError(c.t, err, "%s", out)
	cmd := exec.Command(program, c.Services["thumbnails"].Command...)
	cmd.Env = append(pairs(c.environment("thumbnails")), "THUMBNAILS_ADDR=127.0.0.1:0",
		"THUMBNAILS_IMAGES="+dir+"/images", "THUMBNAILS_OUT="+dir+"/out")
	stderr, err := cmd.StderrPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := workerLine.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	select {
	case found := <-address:
		c.hosts = append(c.hosts, "thumbnails:8081", found)
	case <-time.After(patience):
		c.t.Fatal("the sample worker is not ready")
	}
}

var workerLine = regexp.MustCompile(`serving addr=(\S+)`)

// startNode starts a node. In the file its port is that of its container.
func (c *composition) startNode(service string) *process {
	env := c.environment(service)
	require.NotContains(c.t, env, "ASYNCFLOW_LISTEN")
	env["ASYNCFLOW_LISTEN"] = "127.0.0.1:0"
	p := start(c.t, pairs(env), c.Services[service].Command...)
	require.NotEmpty(c.t, p.url, p.said())
	return p
}

// docker-compose.yml is run as Docker would: the same commands with the same environment, in the
// order of depends_on. Only addresses, and the folders of the sample worker, are those of this
// machine. Then the task in the file's first lines is submitted, and done.
func TestComposeRuns(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	c := readComposition(t)
	order := []string{"postgres", "setup-database", "thumbnails", "node-1", "node-2", "setup-types"}
	require.ElementsMatch(t, order, slices.Collect(maps.Keys(c.Services)))
	for i, service := range order {
		for other := range c.Services[service].DependsOn {
			require.Contains(t, order[:i], other, "%s is started before %s", other, service)
		}
	}
	c.startPostgres()
	c.setUp("setup-database")
	c.startThumbnails()
	both := startBalancer(t)
	c.hosts = append(c.hosts, "asyncflow:8080", strings.TrimPrefix(both.URL, "http://"))
	nodes := []*process{c.startNode("node-1"), c.startNode("node-2")}
	for _, node := range nodes {
		checkHealth(t, node.url)
		both.add(node)
	}
	c.hosts = append(c.hosts, "node-1:8080", strings.TrimPrefix(nodes[0].url, "http://"))
	c.setUp("setup-types")
	checkFirstTask(t, c, nodes)
}

// checkHealth runs the check that the Dockerfile sets.
func checkHealth(t *testing.T, url string) {
	t.Helper()
	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	check := regexp.MustCompile(`HEALTHCHECK .*CMD (\[.*\])`).FindSubmatch(dockerfile)
	require.NotNil(t, check)
	var command []string
	require.NoError(t, json.Unmarshal(check[1], &command))
	r := runCLI(t, map[string]string{"ASYNCFLOW_URL": url}, command[1:]...)
	require.Zero(t, r.code, r.stderr)
}

// checkFirstTask does what the comment at the beginning of the file says: a token by a command in
// node-1, and a task at node-1. It ends at node-2.
func checkFirstTask(t *testing.T, c *composition, nodes []*process) {
	t.Helper()
	command := regexp.MustCompile(`/asyncflow (token create .*)\)`).FindStringSubmatch(c.text)
	require.NotNil(t, command)
	token := strings.TrimSpace(c.run(c.environment("node-1"), append(
		[]string{filepath.Join(c.path, "asyncflow")}, strings.Fields(command[1])...)...))
	body := regexp.MustCompile(`-d '(\{.*\})'`).FindStringSubmatch(c.text)
	require.NotNil(t, body)
	var task client.NewTask
	require.NoError(t, json.Unmarshal([]byte(body[1]), &task))
	first, err := client.New(nodes[0].url, token)
	require.NoError(t, err)
	made, err := first.Submit(t.Context(), task)
	require.NoError(t, err)
	second, err := client.New(nodes[1].url, token)
	require.NoError(t, err)
	done, err := second.Wait(t.Context(), made.ID, patience)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusSucceeded, done.Status, "%+v", done)
}
