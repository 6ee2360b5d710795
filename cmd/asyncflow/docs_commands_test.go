package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	pageCommands = regexp.MustCompile("`asyncflow\\s+([^`]+)`" +
		`|(?m:^asyncflow ((?:[^\\\n]|\\\n)*)$)`)
	commandWords = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	commandEnd   = regexp.MustCompile(`\s[#|].*`)
	// commandNames are commands that a sentence names without their arguments.
	commandNames = regexp.MustCompile(`^(dev|listen|operations watch|tenants|verify)$`)
	// operatorPages are the pages with the commands to try.
	operatorPages = []string{"alerts.md", "operations.md", "where.md"}
)

// commandsForOperators returns the arguments of the commands that a page for operators names, each
// once, in its order. Of a command that is named without arguments it asks for the help.
func commandsForOperators(t *testing.T, page string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	var commands [][]string
	seen := map[string]bool{}
	for _, m := range pageCommands.FindAllStringSubmatch(string(text), -1) {
		command := strings.ReplaceAll(m[1]+m[2], "\\\n", " ")
		command = strings.TrimSpace(commandEnd.ReplaceAllString(command, ""))
		args := commandWords.FindAllString(command, -1)
		if command = strings.Join(args, " "); seen[command] {
			continue
		}
		seen[command] = true
		for i := range args {
			args[i] = strings.Trim(args[i], `'"`)
		}
		if commandNames.MatchString(command) {
			args = append(args, "--help")
		}
		commands = append(commands, args)
	}
	require.NotEmpty(t, commands, "%s names no command", page)
	return commands
}

// The commands that the pages for operators name exist, with their arguments and flags. A server
// refuses all of them, and commands for a database find none.
func TestCommandsForOperatorsExist(t *testing.T) {
	t.Parallel()
	env := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	for _, page := range operatorPages {
		for _, args := range commandsForOperators(t, page) {
			if args[0] == "keys" && args[1] == "generate" { // it writes a file
				continue
			}
			t.Run(page+" "+strings.Join(args, " "), func(t *testing.T) {
				r := runCLI(t, env, args...)
				lacks := strings.HasPrefix(r.stderr, "asyncflow: set ") // a variable that isn't set
				assert.True(t, lacks || r.code != exitUsage, r.stderr)
			})
		}
	}
}

// runCommandsForOperators runs the commands that the pages for operators name, in their order, on
// the dev server with its data in dir. They get names and ids for the words that stand for some.
func runCommandsForOperators(t *testing.T, dir string) {
	t.Helper()
	s := operatorSite{T: t, env: map[string]string{"ASYNCFLOW_DATA": dir}, dir: t.TempDir()}
	s.prepare()
	for _, page := range operatorPages {
		for _, args := range commandsForOperators(t, page) {
			if args[0] != "serve" {
				s.run(s.withNames(args)...)
			}
		}
	}
}

// operatorSite holds two types: the worker of "broken" refuses every task, and the tasks of
// "claimed" wait for claimers.
type operatorSite struct {
	*testing.T
	env      map[string]string
	dir      string // for files
	endpoint string
	keys     int // how many flow keys are blocked by a failed task
}

func (s *operatorSite) prepare() {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "a timeout", http.StatusUnprocessableEntity)
	}))
	s.Cleanup(worker.Close)
	file := filepath.Join(s.dir, "types.yaml")
	require.NoError(s, os.WriteFile(file, []byte(`types:
  - name: broken
    retry: {max_attempts: 1}
    flow: {ordered: true, on_failure: block}
    stages: [{name: send}]
  - name: claimed
    stages: [{name: review, mode: claim}]
schedules:
  - {name: nightly, type: claimed, cron: "30 3 * * *", context: {}}
`), 0o600))
	s.run("types", "apply", "-f", file)
	r := s.run("endpoints", "create", "--type", "broken", "--stage", "send", worker.URL,
		"-o", "json")
	var created struct{ ID string }
	require.NoError(s, json.Unmarshal([]byte(r.stdout), &created))
	s.endpoint = created.ID
}

// run runs a command, which must succeed.
func (s *operatorSite) run(args ...string) ran {
	s.Helper()
	r := runCLI(s.T, s.env, args...)
	require.Zero(s, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	return r
}

// withNames replaces the words that stand for names and ids, and leaves out what would wait for
// Ctrl-C or write a file here.
func (s *operatorSite) withNames(args []string) []string {
	names := map[string]string{"T": "broken", "TYPE": "thumbnails", "S": "review", "NAME": "rescue",
		"TEXT": "timeout", "JSON": "{}", "jwt.pem": filepath.Join(s.dir, "jwt.pem")}
	switch {
	case args[0] == "claim":
		names["T"] = "claimed"
		s.run("tasks", "submit", "claimed", "{}")
	case args[0] == "types" && args[1] == "resume": // with a ramp, which holds up what follows
		names["T"] = "thumbnails"
		s.run("types", "resume", "broken")
	case args[0] == "schedules":
		names["NAME"] = "nightly"
	case slices.Equal(args, []string{"tasks", "cancel", "ID"}),
		slices.Equal(args, []string{"tasks", "change", "ID", "--end-by", "1h"}):
		names["ID"] = s.waitingTask()
	case args[0] == "endpoints":
		names["ID"] = s.endpoint
	case slices.Contains(args, "ID") || slices.Contains(args, "K"):
		names["ID"], names["K"] = s.failedTask()
	}
	var out []string
	for _, arg := range args {
		if name, ok := names[arg]; ok {
			arg = name
		}
		if arg != "--watch" {
			out = append(out, arg)
		}
	}
	return out
}

// waitingTask returns the id of a task that is due in an hour.
func (s *operatorSite) waitingTask() string {
	r := s.run("tasks", "submit", "broken", "{}", "--delay", "1h", "-o", "json")
	var task struct{ ID string }
	require.NoError(s, json.Unmarshal([]byte(r.stdout), &task))
	return task.ID
}

// failedTask returns the id of a failed task, and the flow key that it blocks.
func (s *operatorSite) failedTask() (id, key string) {
	s.run("endpoints", "update", s.endpoint, "--weight", "1") // a playbook takes it out
	s.keys++
	key = "customer-" + strconv.Itoa(s.keys)
	r := runCLI(s.T, s.env, "tasks", "submit", "broken", "{}", "--flow-key", key, "--wait",
		"-o", "json")
	var task struct{ ID, Status string }
	require.NoError(s, json.Unmarshal([]byte(r.stdout), &task), r.stderr)
	require.Equal(s, "failed", task.Status)
	return task.ID, key
}
