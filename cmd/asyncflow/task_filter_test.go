package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// filterFlagValues gives a value of each flag that selects tasks.
var filterFlagValues = map[string]string{
	"status":      "", // each command takes its own
	"stage":       "resize",
	"error":       "no such file",
	"key":         "order-17",
	"since":       "2026-11-21T10:00:00Z",
	"until":       "2026-11-22T10:00:00Z",
	"ended-since": "2026-11-23T10:00:00Z",
	"ended-until": "2026-11-24T10:00:00Z",
	"parent":      "scan.1.7",
	"attempts":    "3",
	"code":        "5xx",
	"fingerprint": "5d41402abc4b2a76",
	"flow-key":    "customer-17",
	"worker":      "worker-1",
	"user":        "ada",
	"tags":        "eu,nightly",
	"any-tags":    "eu,us",
	"metadata":    "order=4711",
}

// filterFlagCommands are the commands that select tasks, with a status and what else they need.
var filterFlagCommands = map[string]struct {
	status string
	live   bool // it changes live tasks only: they are not over
}{
	"list":                 {"failed", false},
	"export":               {"failed", false},
	"count":                {"failed", false},
	"count --exact":        {"failed", false},
	"cancel":               {"waiting", true},
	"change --priority=60": {"waiting", true},
	"delay --delay=1h":     {"waiting", true},
	"run-now":              {"waiting", true},
	"redrive":              {"failed", false},
	"rerun":                {"failed", false},
	"erase":                {"failed", false},
}

// Each command sends each of its filters: one that got lost would make it change other tasks, too.
func TestEachCommandSendsEachFilter(t *testing.T) {
	t.Parallel()
	for command, c := range filterFlagCommands {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			for flag, value := range filterFlagValues {
				if flag == "status" {
					value = c.status
				}
				args := append(strings.Fields("tasks "+command), "--type", "t", "--"+flag, value)
				if strings.HasPrefix(command, "rerun") && flag != "status" {
					args = append(args, "--status", c.status) // it asks for one
				}
				var sent []map[string]string
				r := runCLI(t, keepsFilters(t, &sent), args...)
				if c.live && strings.HasPrefix(flag, "ended") {
					require.Equal(t, exitUsage, r.code, flag)
					continue
				}
				require.Zero(t, r.code, "%s: %s", flag, r.stderr)
				require.NotEmpty(t, sent, flag)
				require.Equal(t, value, sent[0][strings.ReplaceAll(flag, "-", "_")], flag)
			}
		})
	}
}

// A list is sent its order, and from which end it begins.
func TestListSendsItsOrder(t *testing.T) {
	t.Parallel()
	var sent []map[string]string
	env := keepsFilters(t, &sent)
	for _, flags := range []string{"", "--order ended", "--reverse", "--order ended --reverse"} {
		r := runCLI(t, env, strings.Fields("tasks list --status failed "+flags)...)
		require.Zero(t, r.code, "%s: %s", flags, r.stderr)
		require.NotEmpty(t, sent)
		last := sent[len(sent)-1]
		require.Equal(t, strings.Contains(flags, "ended"), last["order"] == "ended", flags)
		require.Equal(t, strings.Contains(flags, "reverse"), last["reverse"] == "true", flags)
	}
}

// Each command is for the tasks of all types, too: lists and counts without a type, and changes of
// many tasks if they are asked to.
func TestEachCommandIsForAllTypes(t *testing.T) {
	t.Parallel()
	for command, c := range filterFlagCommands {
		args := append(strings.Fields("tasks "+command), "--user", "ada", "--status", c.status)
		if !slices.Contains([]string{"list", "export", "count", "count --exact"}, command) {
			args = append(args, "--all-types")
		}
		var sent []map[string]string
		r := runCLI(t, keepsFilters(t, &sent), args...)
		require.Zero(t, r.code, "%s: %s", command, r.stderr)
		require.NotEmpty(t, sent, command)
		_, typed := sent[0]["type"]
		require.False(t, typed, command)
		if !slices.Contains([]string{"list", "export", "count"}, command) {
			require.Equal(t, "true", sent[0]["all_types"], command)
		}
	}
}

// A dry run counts by the same filter as the change.
func TestDryRunsSendEachFilter(t *testing.T) {
	t.Parallel()
	for command, c := range filterFlagCommands {
		if slices.Contains([]string{"list", "export", "count", "count --exact"}, command) {
			continue
		}
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields("tasks "+command), "--type", "t")
			for flag, value := range filterFlagValues {
				if flag == "status" {
					value = c.status
				}
				if !c.live || !strings.HasPrefix(flag, "ended") {
					args = append(args, "--"+flag, value)
				}
			}
			var sent []map[string]string
			env := keepsFilters(t, &sent)
			r := runCLI(t, env, append(slices.Clone(args), "--dry-run")...)
			require.Zero(t, r.code, r.stderr)
			r = runCLI(t, env, args...)
			require.Zero(t, r.code, r.stderr)
			require.Len(t, sent, 2)
			require.Equal(t, "true", sent[0]["dry_run"])
			delete(sent[0], "dry_run")
			require.Equal(t, sent[1], sent[0])
		})
	}
}

var helpFlags = regexp.MustCompile(`(?m)^ +(?:-\w, |    )--(?:\[no-\])?([a-z-]+)`)

// Every flag of every such command is in the tables of these tests, so that a new filter is tried.
func TestEachFilterIsTried(t *testing.T) {
	t.Parallel()
	no := strings.Fields(`type text order reverse limit cursor children no-children exact detach format
		all-types dry-run pace yes reason priority delay run-at context context-patch retry
		start-by end-by claim-exclude claim-label claim-anyone from-stage all-children fresh dependents
		state lag contents idempotency-key help version url token output token-file`)
	for command := range filterFlagCommands {
		name, _, _ := strings.Cut(command, " ")
		flags := 0
		for _, m := range helpFlags.FindAllStringSubmatch(
			runCLI(t, nil, "tasks", name, "--help").stdout, -1) {
			flags++
			_, tried := filterFlagValues[m[1]]
			require.True(t, tried || slices.Contains(no, m[1]),
				"asyncflow tasks %s has --%s: is it a filter?", name, m[1])
		}
		require.Greater(t, flags, len(filterFlagValues)-3, name)
	}
}

// keepsFilters is a server that keeps the parameters of its calls, or the members of their bodies.
func keepsFilters(t *testing.T, sent *[]map[string]string) map[string]string {
	return serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got := map[string]string{}
		for name, values := range r.URL.Query() {
			got[name] = values[0]
		}
		var members map[string]any
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &members); err != nil {
				t.Error(err)
			}
		}
		for name, value := range members {
			got[name] = fmt.Sprint(value)
		}
		*sent = append(*sent, got)
		switch {
		case r.Method == http.MethodPost && got["dry_run"] == "true":
			answer(w, 200, api.Count{Count: 1})
		case r.Method == http.MethodPost:
			answer(w, 202, client.Operation{ID: "op-1", State: client.OperationDone})
		case strings.HasSuffix(r.URL.Path, "/count"):
			answer(w, 200, client.TaskCount{Count: 1, Exact: true})
		default:
			answer(w, 200, client.TaskList{Data: []client.Task{}})
		}
	})
}

// A filter that a call lacks is an error: without it, the call would change other tasks, too.
func TestAFilterThatACallLacks(t *testing.T) {
	t.Parallel()
	f := manyFlags{Type: "t"}
	_, err := selecting[struct {
		Type string `json:"type"`
	}](&f, "", endedFlags{})
	require.NoError(t, err)
	f.Key = "order-17"
	_, err = selecting[struct {
		Type string `json:"type"`
	}](&f, "", endedFlags{})
	require.ErrorContains(t, err, "key")
}
