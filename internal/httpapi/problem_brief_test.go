package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An answer names a bounded number of a body's faults, each with a bounded length, and takes no
// more memory than the body.
func TestAnswersToManyFaultsAreShort(t *testing.T) {
	b := setup(t)
	b.pipe()
	const many = 50_000
	var unknown strings.Builder
	for i := range many {
		fmt.Fprintf(&unknown, `,"k%d":1`, i)
	}
	var escaped strings.Builder
	for i := range 30 {
		fmt.Fprintf(&escaped, `,"%d%s":1`, i, strings.Repeat(`\u0001`, 200))
	}
	long := strings.Repeat("a", 500_000)
	for name, c := range map[string]struct{ method, path, body string }{
		"entries": {"PUT", "/v1/task-types/z", `{"stages":[` + strings.Repeat("1,", many) + `1]}`},
		"fields": {"PUT", "/v1/task-types/z", `{"stages":[{"name":"only"}]` + unknown.String() +
			`}`},
		"of a task": {"POST", "/v1/tasks", `{"type":"pipe","context":1` + unknown.String() + `}`},
		"of its part": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"retry":{"a":1` +
			unknown.String() + `}}`},
		"escaped names": {"POST", "/v1/tasks", `{"type":"pipe","context":1` + escaped.String() +
			`}`},
		"long name": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"` + long + `":1}`},
		"long value": {"POST", "/v1/endpoints", `{"type":"pipe","stage":"only","url":"` + long +
			`"}`},
	} {
		a := b.call(c.method, c.path, c.body)
		assert.Equal(t, 400, a.status, name)
		assert.Less(t, len(a.body), 16<<10, "%s: in bytes", name)
		assert.NotEmpty(t, a.problem.Errors, name)
	}
	a := b.call("PUT", "/v1/task-types/z", `{"stages":[`+strings.Repeat("1,", many)+`1]}`)
	require.Len(t, a.problem.Errors, 21)
	assert.Equal(t, "has more faults than these 20", a.problem.Errors[20].Message)

	some, _, _ := strings.Cut(unknown.String(), `,"k400"`)
	task := `{"type":"pipe","context":1,"retry":{"a":1` + some + `}}`
	a = b.call("POST", "/v1/tasks/batch", `{"tasks":[`+strings.Repeat(task+",", 199)+task+`]}`)
	require.Equal(t, 201, a.status)
	assert.Less(t, len(a.body), 1<<20, "in bytes")
}
