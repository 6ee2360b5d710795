package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// Each bad input is answered with the right status and code, and the error names its field.
func TestBadInput(t *testing.T) {
	b := setup(t)
	b.pipe()
	long := strings.Repeat("a", 41)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code, field, says  string
	}{
		"malformed JSON": {"POST", "/v1/tasks", `{"type":"pipe",`, 400, "invalid_argument",
			"body", "JSON"},
		"something after it": {"POST", "/v1/tasks", `{"type":"pipe","context":1} {}`, 400,
			"invalid_argument", "body", ""},
		"no body": {"POST", "/v1/tasks", ``, 400, "invalid_argument", "body", "required"},
		"unknown field": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"prio":3}`, 400,
			"invalid_argument", "prio", "not a known field"},
		"other capitals": {"POST", "/v1/tasks", `{"type":"pipe","CONTEXT":1}`, 400,
			"invalid_argument", "CONTEXT", "not a known field"},
		"a field twice": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"context":2}`, 400,
			"invalid_argument", "context", "twice"},
		"a parameter of a submit": {"POST", "/v1/tasks?dry=1", `{"type":"pipe","context":1}`, 400,
			"invalid_argument", "dry", ""},
		"a parameter twice": {"GET", "/v1/tasks?type=pipe&type=pipe", ``, 400, "invalid_argument",
			"type", "2 times"},
		"a space in a path": {"PUT", "/v1/task-types/Bad%20Name", `{"stages":[{"name":"a"}]}`, 400,
			"invalid_argument", "type", `is \"Bad Name\"; `},
		"a slash in a path": {"PUT", "/v1/task-types/a%2Fb", `{"stages":[{"name":"a"}]}`, 400,
			"invalid_argument", "type", `is \"a/b\"; `},
		"a good name with escapes": {"GET", "/v1/task-types/%70ipe", ``, 400, "invalid_argument",
			"type",
			`is \"%70ipe\"; `},
		"no UTF-8 in a path": {"GET", "/v1/task-types/%ff", ``, 400, "invalid_argument", "type",
			`is \"%ff\"; `},
		"a number in a path": {"GET", "/v1/task-types/pipe/versions/2147483648", ``, 400,
			"invalid_argument", "version", `is 2147483648; `},
		"an endpoint's id": {"GET", "/v1/endpoints/%00", ``, 404, "not_found", "", ""},
		"a port out of range": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://h:99999/x"}`, 400, "invalid_argument",
			"url",
			"65535"},
		"no type": {"POST", "/v1/tasks", `{"context":1}`, 400, "invalid_argument", "type",
			"required"},
		"no context": {"POST", "/v1/tasks", `{"type":"pipe"}`, 400, "invalid_argument",
			"context", "required"},
		"unknown type": {"POST", "/v1/tasks", `{"type":"nope","context":1}`, 404, "not_found",
			"type", ""},
		"over-long type": {"POST", "/v1/tasks", `{"type":"` + long + `","context":1}`, 400,
			"invalid_argument", "type", "40"},
		"a type of another kind": {"POST", "/v1/tasks", `{"type":7,"context":1}`, 400,
			"invalid_argument", "type", "string"},
		"context over the limit": {"POST", "/v1/tasks", `{"type":"pipe","context":"` +
			strings.Repeat("x", maxContext) + `"}`, 413, "too_large", "context", "1000"},
		"context too deep": {"POST", "/v1/tasks", `{"type":"pipe","context":` + deep + `}`, 400,
			"invalid_argument", "context", "128"},
		"context not UTF-8": {"POST", "/v1/tasks", "{\"type\":\"pipe\",\"context\":\"\xff\"}", 400,
			"invalid_argument", "context", "UTF-8"},
		"bad delay": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"delay":"soon"}`,
			400, "invalid_argument", "delay", "duration"},
		"delay is a number": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"delay":5}`, 400,
			"invalid_argument", "delay", "string"},
		"delay over a year": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"delay":"9000h"}`,
			400, "invalid_argument", "delay", "8760h"},
		"delay and run_at": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"delay":"1s","run_at":"2030-01-01T00:00:00Z"}`, 400,
			"invalid_argument", "delay", "run_at"},
		"bad run_at": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"run_at":"tomorrow"}`, 400, "invalid_argument", "run_at",
			""},
		"negative priority": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"priority":-1}`,
			400, "invalid_argument", "priority", "31536000"},
		"priority is text": {"POST", "/v1/tasks", `{"type":"pipe","context":1,"priority":"high"}`,
			400, "invalid_argument", "priority", ""},
		"too many attempts": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"max_attempts":101}}`, 400, "invalid_argument",
			"retry.max_attempts", "100"},
		"no attempts": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"max_attempts":0}}`, 400, "invalid_argument",
			"retry.max_attempts", "1 to 100"},
		"a field twice, inside": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"max_attempts":1,"max_attempts":2}}`, 400,
			"invalid_argument", "retry.max_attempts", "twice"},
		"run_at over a year": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"run_at":"2999-01-01T00:00:00Z"}`, 400, "invalid_argument",
			"run_at",
			"8760h"},
		"a window without a key": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"key_window":"1h"}`, 400, "invalid_argument", "key_window",
			"needs a key"},
		"a window too long": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"key":"k","key_window":"4321h"}`, 400, "invalid_argument",
			"key_window", "4320h"},
		"body over the limit": {"POST", "/v1/tasks", `{"type":"pipe","context":"` +
			strings.Repeat("x", 1<<20) + `"}`, 413, "too_large", "body", ""},
		"batch over 1,000": {"POST", "/v1/tasks/batch", `{"tasks":[` +
			strings.Repeat(`{"type":"pipe","context":1},`, 1000) + `{"type":"pipe","context":1}]}`,
			400,
			"invalid_argument", "tasks", "1000"},
		"empty batch": {"POST", "/v1/tasks/batch", `{"tasks":[]}`, 400, "invalid_argument",
			"tasks", "1000"},
		"batch is no list": {"POST", "/v1/tasks/batch", `{"tasks":{}}`, 400, "invalid_argument",
			"tasks", "array"},
		"stage without a name": {"PUT", "/v1/task-types/new", `{"stages":[{"timeout":"5s"}]}`, 400,
			"invalid_argument", "stages[0].name", "required"},
		"no stages": {"PUT", "/v1/task-types/new", `{"stages":[]}`, 400,
			"invalid_argument", "stages", ""},
		"unknown field of a stage": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retries":3}]}`,
			400, "invalid_argument", "stages[0].retries", "not a known field"},
		"bad timeout": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","timeout":"ten"}]}`, 400, "invalid_argument",
			"stages[0].timeout",
			"duration"},
		"timeout over the limit": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","timeout":"2h"}]}`, 400, "invalid_argument",
			"stages[0].timeout",
			"1h"},
		"timeout too short": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","timeout":"99ms"}]}`, 400, "invalid_argument",
			"stages[0].timeout",
			"100ms"},
		"processing time too long": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","max_processing_time":"721h"}]}`, 400, "invalid_argument",
			"stages[0].max_processing_time", "720h"},
		"leases too rare": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a"}],"schedule_interval":"25h"}`, 400, "invalid_argument",
			"schedule_interval", "24h"},
		"a name twice in a stage": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a"},{"name":"b","name":"c"}]}`, 400, "invalid_argument",
			"stages[1].name",
			"twice"},
		"the same stage twice": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a"},{"name":"a"}]}`, 400, "invalid_argument", "stages[1].name",
			""},
		"interval of zero": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retry":{"interval":0}}]}`, 400, "invalid_argument",
			"stages[0].retry.interval", ""},
		"interval is text": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retry":{"interval":"often"}}]}`, 400, "invalid_argument",
			"stages[0].retry.interval", "is not a valid expression: unknown name often (1:1)"},
		"interval of a type": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a"}],"retry":{"interval":"2 ** attemps"}}`, 400,
			"invalid_argument",
			"retry.interval", "is not a valid expression: unknown name attemps (1:6)"},
		"interval of a task": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"interval":"attempt *"}}`, 400, "invalid_argument",
			"retry.interval", "is not a valid expression: unexpected token EOF (1:9)"},
		"interval is no number": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retry":{"interval":"error"}}]}`, 400, "invalid_argument",
			"stages[0].retry.interval", "must be a number, not string"},
		"interval is empty": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retry":{"interval":""}}]}`, 400, "invalid_argument",
			"stages[0].retry.interval", "or a string of 1 to 500 characters"},
		"interval is a mapping": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retry":{"interval":{}}}]}`, 400, "invalid_argument",
			"stages[0].retry.interval", "a number, or an array"},
		"a task's is a mapping": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"interval":{}}}`, 400, "invalid_argument",
			"retry.interval",
			"a number, or an array"},
		"a task's is empty": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"interval":""}}`, 400, "invalid_argument",
			"retry.interval",
			"or a string of 1 to 500 characters"},
		"interval is a long text": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","retry":{"interval":"` + strings.Repeat("1", 501) + `"}}]}`,
			400,
			"invalid_argument", "stages[0].retry.interval", "1 to 500"},
		"interval is a bomb": {"POST", "/v1/tasks",
			`{"type":"pipe","context":1,"retry":{"interval":"1..1000000000"}}`, 400,
			"invalid_argument",
			"retry.interval", "unknown operator .."},
		"an unknown policy for children": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","fan_out":{"items":"/x","on_child_failure":"never"}}]}`, 400,
			"invalid_argument", "stages[0].fan_out.on_child_failure", `is \"never\"; it must be ` +
				"fail_fast, all_settled, or {tolerate: {count of 0 to 100000 | percent of 0 to " +
				"100}}"},
		"another policy for children": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","fan_out":{"items":"/x","on_child_failure":{"forgive":1}}}]}`,
			400,
			"invalid_argument", "stages[0].fan_out.on_child_failure",
			"must be fail_fast, all_settled, or"},
		"more than all children": {"PUT", "/v1/task-types/new",
			`{"stages":[{"name":"a","fan_out":{"items":"/x","on_child_failure":{"tolerate":` +
				`{"percent":101}}}}]}`, 400, "invalid_argument",
			"stages[0].fan_out.on_child_failure",
			"percent of 0 to 100"},
		"over-long name": {"PUT", "/v1/task-types/" + long, `{"stages":[{"name":"a"}]}`, 400,
			"invalid_argument", "type", "40"},
		"name in capitals": {"PUT", "/v1/task-types/Pipe", `{"stages":[{"name":"a"}]}`, 400,
			"invalid_argument", "type", "lower-case"},
		"rate without a time": {"PUT", "/v1/task-types/new", `{"rate":"5","stages":[{"name":"a"}]}`,
			400,
			"invalid_argument", "rate", "such as 100/s, 6000/m or 3600/h\"}"},
		"relative URL": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"/hook"}`, 400, "invalid_argument", "url",
			"absolute"},
		"ftp URL": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"ftp://h/x"}`, 400, "invalid_argument", "url",
			"absolute"},
		"http where it is off": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"http://h/x"}`, 400, "invalid_argument", "url",
			"https"},
		"URL with a password": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://u:p@h/x"}`, 400, "invalid_argument",
			"url",
			"password"},
		"URL with an address": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://93.184.216.34/x"}`, 400,
			"invalid_argument",
			"url", "addresses are not taken"},
		"URL with a number": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://2130706433/x"}`, 400, "invalid_argument",
			"url",
			"other spellings"},
		"URL of this machine": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://localhost/x"}`, 400, "invalid_argument",
			"url",
			"this machine"},
		"alerts to an address": {"PUT", "/v1/alerts",
			`{"url":"https://169.254.169.254/","rules":{"backlog_age":"1m"}}`, 400,
			"invalid_argument",
			"url", "addresses are not taken"},
		"a secret of its own kind": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://h/x","secret":"hush"}`, 400,
			"invalid_argument",
			"secret", "whsec_"},
		"endpoint of unknown type": {"POST", "/v1/endpoints",
			`{"type":"nope","stage":"first","url":"https://h/x"}`, 404, "not_found", "type", ""},
		"of an unknown stage": {"POST", "/v1/endpoints",
			`{"type":"pipe","stage":"nope","url":"https://h/x"}`, 404, "not_found", "stage", ""},
		"unknown endpoint":  {"GET", "/v1/endpoints/nope", ``, 404, "not_found", "", "nope"},
		"unknown task type": {"GET", "/v1/task-types/nope", ``, 404, "not_found", "type", ""},

		"no task's id": {"GET", "/v1/tasks/42", ``, 400, "invalid_argument", "id",
			"thumbnails.1.42"},

		"unknown task": {"GET", "/v1/tasks/pipe.1.99", ``, 404, "not_found", "", "pipe.1.99"},
		"a wait too long": {"GET", "/v1/tasks/pipe.1.1?wait=2h", ``, 400, "invalid_argument",
			"wait", "1m"},
		"a wait that isn't one": {"GET", "/v1/tasks/pipe.1.1?wait=long", ``, 400,
			"invalid_argument", "wait", "duration"},
		"unknown parameter": {"GET", "/v1/tasks/pipe.1.1?watch=1", ``, 400, "invalid_argument",
			"watch", ""},
		"list of unknown status": {"GET", "/v1/tasks?type=pipe&status=lost", ``, 400,
			"invalid_argument", "status", ""},
		"a page too long": {"GET", "/v1/tasks?type=pipe&limit=501", ``, 400, "invalid_argument",
			"limit", "500"},
		"a cursor of its own": {"GET", "/v1/tasks?type=pipe&cursor=xyz", ``, 400,
			"invalid_argument", "cursor", ""},
		"bad since": {"GET", "/v1/tasks?type=pipe&since=monday", ``, 400,
			"invalid_argument", "since", ""},
		"no such path":   {"GET", "/v1/nope", ``, 404, "not_found", "", "path"},
		"no such method": {"DELETE", "/v1/tasks", ``, 405, "", "", "DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.call(c.method, c.path, c.body)
			require.Equal(t, c.status, a.status, "%s", a.body)
			assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
			if c.code != "" {
				assert.Equal(t, c.code, a.problem.Code)
			}
			if c.field != "" {
				require.NotEmpty(t, a.problem.Errors, "%s", a.body)
				assert.Equal(t, c.field, a.problem.Errors[0].Field, "%s", a.body)
			}
			assert.Contains(t, string(a.body), c.says)
		})
	}
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", ""))
	assert.Empty(t, list.Data, "nothing of all that became a task")
}

// A worker's report is checked against the limits of documents. A refused report doesn't end the
// attempt.
func TestBadReports(t *testing.T) {
	b := setup(t)
	b.pipe()
	_, path := b.submitOne()
	_, token := b.lease()
	before := b.contents()
	for name, c := range map[string]struct {
		call, body  string
		status      int
		field, says string
	}{
		"output over the limit": {"complete", `{"output":"` + strings.Repeat("x", maxContext) +
			`"}`, 413,
			"output", "1000"},
		"output too deep": {"complete", `{"output":` + strings.Repeat("[", 129) +
			strings.Repeat("]", 129) + `}`, 400, "output", "128"},
		"output not UTF-8":      {"complete", "{\"output\":\"\xff\"}", 400, "output", "UTF-8"},
		"output with a raw NUL": {"complete", "{\"output\":\"\x00\"}", 400, "body", "JSON"},
		"output twice":          {"complete", `{"output":1,"output":2}`, 400, "output", "twice"},
		"an error too long": {"fail", `{"error":"` + strings.Repeat("x", 4097) + `"}`, 400, "error",
			"4096"},
		"a note too long": {"progress", `{"percent":1,"note":"` + strings.Repeat("x", 501) + `"}`,
			400, "note", "500"},
		"a heartbeat with more": {"heartbeat", `{"percent":1}`, 400, "percent", "not a known field"},
	} {
		a := b.callAs(token, "POST", path+"/"+c.call, c.body)
		assert.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		if assert.NotEmpty(t, a.problem.Errors, name) {
			assert.Equal(t, c.field, a.problem.Errors[0].Field, name)
			assert.Contains(t, a.problem.Errors[0].Message, c.says, name)
		}
	}
	assert.Equal(t, before, b.contents())
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/heartbeat", "{}").status)
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/progress",
		"{\"percent\":1,\"note\":\"\xff\\u0000\"}").status, "text of any bytes counts")
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/fail",
		"{\"error\":\"a\xff\\u0000\"}").status, "text of any bytes counts")
}

func TestIdempotencyKeyTooLong(t *testing.T) {
	b := setup(t)
	b.pipe()
	req, err := http.NewRequest("POST", b.url+"/v1/tasks",
		strings.NewReader(`{"type":"pipe","context":1}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", strings.Repeat("k", 256))
	a := b.do(req)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Idempotency-Key", a.problem.Errors[0].Field)
	assert.Contains(t, a.problem.Errors[0].Message, "255")
}

func TestContentType(t *testing.T) {
	b := setup(t)
	req, err := http.NewRequest("POST", b.url+"/v1/tasks", strings.NewReader(`{}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "text/plain")
	a := b.do(req)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Content-Type", a.problem.Errors[0].Field)
}

// In a batch, one bad task doesn't affect the others.
func TestBatchWithBadTasks(t *testing.T) {
	b := setup(t)
	b.pipe()
	a := read[api.SubmittedBatch](b, 201, b.call("POST", "/v1/tasks/batch", `{"tasks":[
		{"type":"pipe","context":{"n":1}},
		{"type":"pipe","context":{"n":2},"prio":3},
		{"type":"pipe","context":{"n":3},"priority":"high"},
		{"type":"nope","context":{"n":4}},
		{"type":"pipe"},
		17,
		{"type":"pipe","context":"`+strings.Repeat("x", maxContext)+`"},
		{"type":"pipe","context":"`+"\xff"+`"},
		{"type":"pipe","context":{"n":9},"delay":"5m"},
		{"type":"nope","context":{"n":10}}]}`))
	require.Len(t, a.Tasks, 10)
	for i, want := range map[int]struct {
		status int
		field  string
	}{1: {400, "tasks[1].prio"}, 2: {400, "tasks[2].priority"}, 3: {404, "tasks[3].type"},
		4: {400, "tasks[4].context"},
		5: {400, "tasks[5]"}, 6: {413, "tasks[6].context"}, 7: {400, "tasks[7].context"},
		9: {404, "tasks[9].type"}} {
		t.Run(fmt.Sprintf("task %d", i), func(t *testing.T) {
			p := a.Tasks[i].Error
			assert.Equal(t, want.status, p.Status, "task %d: %+v", i, p)
			if assert.NotEmpty(t, p.Errors, "task %d: %+v", i, p) {
				assert.Equal(t, want.field, p.Errors[0].Field, "task %d: %+v", i, p)
			}
		})
	}
	assert.Equal(t, asyncflow.StatusPending, a.Tasks[0].Task.Status)
	assert.Equal(t, asyncflow.StatusWaiting, a.Tasks[8].Task.Status)
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", ""))
	assert.Len(t, list.Data, 2)
}
