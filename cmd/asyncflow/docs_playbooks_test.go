package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// playbookFinds are the tasks of a playbookSite that each command of a playbook finds or changes,
// if it goes by a filter.
var playbookFinds = map[string]string{
	"tasks list --type T --status failed --ended-since 1h":          "away refused",
	"tasks list --status failed --ended-since 1h":                   "away refused",
	"tasks list --type T --status failed --ended-since 24h -o json": "away refused refused-90m",
	"tasks list --type T --stage S --attempts 2":                    "away",
	"tasks list --type T --status waiting":                          "delayed late second",
	"tasks list --type T --flow-key K":                              "behind refused",
	"tasks redrive --type T --ended-since 2h":                       "away refused refused-90m",
	"tasks redrive --type T --code 422 --ended-since 1h":            "refused",
	"tasks cancel --type T --status pending":                        "pending",
	"tasks cancel --type T --status waiting --until 5m":             "delayed",
	"tasks cancel --type T --stage S --status waiting":              "second",
}

// The commands of the playbooks that go by a filter find the tasks that the playbook is about, and
// no others. So each of them has its line in playbookFinds, and each line its command.
func TestPlaybooksFindTheirTasks(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	node := startNode(t, url)
	w := startWorker(t, func(w http.ResponseWriter, _ *http.Request, d delivery) {
		var code int
		if json.Unmarshal(d.Context, &code) == nil {
			w.WriteHeader(code)
		}
	})
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_TOKEN": testToken(t)}
	tried := map[string]bool{}
	for section, commands := range playbookCommands(t) {
		for _, args := range commands {
			command := strings.Join(args, " ")
			if args[0] != "tasks" || !slices.Contains(args, "--type") &&
				!slices.Contains(args, "--status") {
				continue
			}
			want, known := playbookFinds[command]
			if !assert.True(t, known, "what does this find: %s", command) {
				continue
			}
			tried[command] = true
			t.Run(section+" "+command, func(t *testing.T) {
				s := playbookSite{T: t, api: node.client(), url: url, section: section,
					name: fmt.Sprintf("type-%d", len(tried)), tasks: map[string]string{}}
				s.name += strings.ReplaceAll(section, "_", "-")
				s.prepare(w)
				assert.Equal(t, want, s.found(env, args))
			})
		}
	}
	for command := range playbookFinds {
		assert.True(t, tried[command], "no playbook has it: %s", command)
	}
}

// playbookCommands returns the arguments of the commands of each playbook of docs/alerts.md.
func playbookCommands(t *testing.T) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/alerts.md")
	require.NoError(t, err)
	all := map[string][][]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		if !strings.Contains(body, "**Do**") {
			continue
		}
		for _, m := range pageCommands.FindAllStringSubmatch(body, -1) {
			command := strings.TrimSpace(commandEnd.ReplaceAllString(m[1]+m[2], ""))
			all[name] = append(all[name], commandWords.FindAllString(command, -1))
		}
	}
	require.Len(t, all, 14, "playbooks")
	return all
}

// playbookSite holds tasks in the states that playbooks are about, under their names.
type playbookSite struct {
	*testing.T
	api                *client.Client
	url, section, name string
	tasks              map[string]string // ids by name
}

// prepare makes a type. Its worker answers with the status in the context. Its tasks fail, wait
// at the second stage, for their time or for other tasks, or, as it is paused, for capacity.
func (s *playbookSite) prepare(w *worker) {
	s.Helper()
	spec := client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "send", Retry: asyncflow.RetryPolicy{MaxAttempts: 1,
			Interval: asyncflow.Seconds(0.01)}},
		{Name: "second"}}}
	switch s.section {
	case "no_claimers":
		spec.Stages[1].Mode = asyncflow.ModeClaim
	case "blocked_key":
		spec.Flow = &asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowBlock}
	}
	_, err := s.api.PutTaskType(s.Context(), s.name, spec)
	require.NoError(s, err)
	_, err = s.api.CreateEndpoint(s.Context(), client.NewEndpoint{Type: s.name, Stage: "send",
		URL: w.URL, Secret: testWebhook})
	require.NoError(s, err)
	for _, name := range []string{"refused", "refused-90m", "refused-30h"} {
		s.submit(name, client.NewTask{Context: []byte(`422`)})
	}
	s.submit("away", client.NewTask{Context: []byte(`503`),
		Retry: client.RetryPolicy{MaxAttempts: 2}})
	s.submit("second", client.NewTask{Context: []byte(`200`)})
	s.submit("delayed", client.NewTask{Context: []byte(`200`),
		Delay: client.NewDuration(time.Hour)})
	s.submit("late", client.NewTask{Context: []byte(`200`),
		DependsOn: []client.Dependency{{Type: s.name, Key: "never"}}})
	for _, name := range []string{"refused", "refused-90m", "refused-30h", "away"} {
		task, err := s.api.Wait(s.Context(), s.tasks[name], patience)
		require.NoError(s, err)
		require.Equal(s, asyncflow.StatusFailed, task.Status)
	}
	require.Eventually(s, func() bool {
		task, err := s.api.Get(s.Context(), s.tasks["second"])
		require.NoError(s, err)
		return task.Stage == "second" && task.Status == asyncflow.StatusWaiting
	}, patience, 20*time.Millisecond)
	_, err = s.api.PauseTaskType(s.Context(), s.name, "")
	require.NoError(s, err)
	if s.section == "blocked_key" {
		s.submitWithKey("behind", "refused", client.NewTask{Context: []byte(`200`)})
	}
	s.submit("pending", client.NewTask{Context: []byte(`200`)})
	s.backdate("journal_1 SET at = at - interval '90 min'", "refused-90m")
	s.backdate("journal_1 SET at = at - interval '30 h'", "refused-30h")
	s.backdate("task_1 SET created_at = created_at - interval '10 min'", "delayed")
}

func (s *playbookSite) submit(name string, task client.NewTask) {
	s.Helper()
	s.submitWithKey(name, name, task)
}

func (s *playbookSite) submitWithKey(name, key string, task client.NewTask) {
	s.Helper()
	task.Type, task.FlowKey = s.name, key
	submitted, err := s.api.Submit(s.Context(), task)
	require.NoError(s, err)
	s.tasks[name] = submitted.ID
}

// backdate changes the rows of a task.
func (s *playbookSite) backdate(change, name string) {
	s.Helper()
	id, err := asyncflow.ParseTaskID(s.tasks[name])
	require.NoError(s, err)
	execSQL(s.T, s.url, fmt.Sprintf(`UPDATE tenant_acme.%s WHERE id = %d AND type =
		(SELECT number FROM tenant_acme.task_types WHERE name = '%s')`, change, id.Number, s.name))
}

// found runs a command and returns the names of the tasks that it lists or changes.
func (s *playbookSite) found(env map[string]string, args []string) string {
	s.Helper()
	stage := "second"
	if s.section == "endpoint_failing" {
		stage = "send"
	}
	words := map[string]string{"T": s.name, "S": stage, "K": "refused"}
	var full []string
	for _, arg := range args {
		if word, ok := words[arg]; ok {
			arg = word
		}
		full = append(full, arg)
	}
	before := map[string]int{}
	for name := range s.tasks {
		before[name] = s.changes(name)
	}
	if !slices.Contains(full, "-o") {
		full = append(full, "-o", "json")
	}
	if full[1] != "list" {
		full = append(full, "--yes")
	}
	r := runCLI(s.T, env, full...)
	require.Zero(s, r.code, "%v: %s%s", full, r.stdout, r.stderr)
	var listed client.TaskList
	if full[1] == "list" {
		require.NoError(s, json.Unmarshal([]byte(r.stdout), &listed))
	}
	var found []string
	for name, id := range s.tasks {
		if s.changes(name) > before[name] || slices.ContainsFunc(listed.Data,
			func(task client.Task) bool { return task.ID == id }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// changes returns how often a task was redriven or cancelled.
func (s *playbookSite) changes(name string) (n int) {
	s.Helper()
	attempts, err := s.api.Attempts(s.Context(), s.tasks[name])
	require.NoError(s, err)
	for _, a := range attempts {
		if string(a.Outcome) == "redriven" || string(a.Outcome) == "cancelled" {
			n++
		}
	}
	return n
}
