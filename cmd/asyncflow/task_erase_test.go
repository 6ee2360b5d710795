package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// Somebody asks to be forgotten: one task is erased, and then all of a user's. Others keep theirs.
func TestCLIErase(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	run := clientOf(t, node)
	run(0, "types", "apply", "-f", writeFile(t, `{types: [{name: pipe, stages: [{name: one}]}]}`))
	var ids []string
	for _, user := range []string{"ada", "ada", "grace"} {
		var task client.Task
		require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "submit", "pipe",
			`{"of": "`+user+`"}`, "--user", user, "-o", "json")), &task))
		ids = append(ids, task.ID)
	}
	run(exitFailed, "tasks", "erase", ids[0]) // it isn't final
	run(0, "tasks", "cancel", "--type", "pipe", "--yes")
	erase := func(how string) string {
		return run(0, "tasks", "erase", "--all-types", "--user", "ada", how)
	}
	require.Equal(t, "2 tasks\n", erase("--dry-run"))
	require.Regexp(t, `(?m)^erased +\S+Z`, run(0, "tasks", "erase", ids[0]))
	require.Equal(t, "1 task\n", erase("--dry-run"))
	require.Contains(t, erase("--yes"), "done      1")
	for i, id := range ids {
		var task client.Task
		require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "get", id, "-o", "json")), &task))
		require.Equal(t, i < 2, task.Erased != nil, id)
		require.Equal(t, i < 2, len(task.Context) == 0, id)
	}
	run(exitFailed, "tasks", "redrive", ids[0])
	require.Contains(t, run(0, "audit", "list", "--action", "task.erase"), ids[0])
}
