package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// flagsOfFilters are the flags of a filter, with a value and what the call has then.
var flagsOfFilters = map[string][2]string{
	"type":        {"t", `"t"`},
	"stage":       {"s", `"s"`},
	"error":       {"no", `"no"`},
	"since":       {"2026-11-21T10:00:00Z", `"2026-11-21T10:00:00Z"`},
	"until":       {"2026-11-21T10:00:00Z", `"2026-11-21T10:00:00Z"`},
	"ended-since": {"2026-11-21T10:00:00Z", `"2026-11-21T10:00:00Z"`},
	"ended-until": {"2026-11-21T10:00:00Z", `"2026-11-21T10:00:00Z"`},
	"key":         {"k", `"k"`},
	"parent":      {"t.1.1", `"t.1.1"`},
	"children":    {"false", `false`},
	"attempts":    {"3", `3`},
	"code":        {"503", `"503"`},
	"fingerprint": {"0123456789abcdef", `"0123456789abcdef"`},
	"flow-key":    {"f", `"f"`},
	"worker":      {"w", `"w"`},
	"user":        {"u", `"u"`},
	"tags":        {"a,b", `"a,b"`},
	"any-tags":    {"a,b", `"a,b"`},
	"metadata":    {"a=b", `"a=b"`},
	"pace":        {"5", `5`},
}

// Every flag of a filter narrows what a command changes: none is taken and then forgotten.
func TestEveryFilterIsSent(t *testing.T) {
	t.Parallel()
	// The flags that go with each command, and flags that filter nothing.
	commands := map[string]string{"tasks cancel": "", "tasks redrive": "", "tasks erase": "",
		"tasks rerun": "--status=failed", "tasks change": "--priority=1",
		"tasks delay": "--delay=1h", "tasks run-now": ""}
	others := strings.Fields("status all-types dry-run yes detach reason context retry priority " +
		"delay run-at start-by end-by claim-exclude claim-label claim-anyone from-stage " +
		"all-children fresh dependents idempotency-key help url token output secret")
	var c cli
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	require.NoError(t, err)
	tried := 0
	for _, leaf := range parser.Model.Leaves(false) {
		more, bulk := commands[leaf.Path()]
		if !bulk {
			continue
		}
		tried++
		t.Run(leaf.Path(), func(t *testing.T) {
			args, want := strings.Fields(leaf.Path()+" "+more), map[string]string{}
			for _, f := range leaf.Flags {
				value, filters := flagsOfFilters[f.Name]
				without := leaf.Path() == "tasks rerun" && f.Name == "children" // in any case
				if without || slices.Contains(others, f.Name) {
					continue
				}
				require.True(t, filters, "what does --%s do?", f.Name)
				args = append(args, fmt.Sprintf("--%s=%s", f.Name, value[0]))
				want[strings.ReplaceAll(f.Name, "-", "_")] = value[1]
			}
			require.Greater(t, len(want), 17)
			var bodies []string
			end := client.Operation{ID: "op-1", State: client.OperationDone}
			env := operated(t, 1, end, &bodies)
			for _, how := range []string{"--dry-run", "--yes"} {
				r := runCLI(t, env, append(slices.Clone(args), how)...)
				require.Zero(t, r.code, r.stderr)
			}
			require.Len(t, bodies, 2)
			for _, body := range bodies {
				var sent map[string]json.RawMessage
				require.NoError(t, json.Unmarshal([]byte(body), &sent))
				for name, value := range want {
					assert.Equal(t, value, string(sent[name]), name)
				}
			}
		})
	}
	require.Equal(t, len(commands), tried)
}

// Every flag of a filter narrows what a command lists or counts.
func TestEveryFilterIsAsked(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	require.NoError(t, err)
	tried := 0
	for _, leaf := range parser.Model.Leaves(false) {
		if leaf.Path() != "tasks list" && leaf.Path() != "tasks count" {
			continue
		}
		tried++
		t.Run(leaf.Path(), func(t *testing.T) {
			args, want := strings.Fields(leaf.Path()), map[string]string{}
			for _, f := range leaf.Flags {
				value, filters := flagsOfFilters[f.Name]
				if filters && f.Name != "children" { // without it they are left out
					args = append(args, "--"+f.Name+"="+value[0])
					want[strings.ReplaceAll(f.Name, "-", "_")] = strings.Trim(value[1], `"`)
				}
			}
			require.Greater(t, len(want), 16)
			asked := make(chan url.Values, 1)
			env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
				asked <- r.URL.Query()
				answer(w, 200, map[string]any{"data": []any{}, "count": 1, "exact": true})
			})
			r := runCLI(t, env, args...)
			require.Zero(t, r.code, r.stderr)
			query := <-asked
			for name, value := range want {
				assert.Equal(t, value, query.Get(name), name)
			}
		})
	}
	require.Equal(t, 2, tried)
}
