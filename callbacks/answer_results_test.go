package callbacks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// deliveriesTo returns n deliveries that go in one request to a URL: of the tasks thumbnails.1.1,
// thumbnails.1.2, …
func deliveriesTo(url string, n int) []asyncflow.Delivery {
	all := make([]asyncflow.Delivery, n)
	for i := range all {
		all[i] = deliveryTo(url)
		all[i].Lease.ID = asyncflow.NewTaskID("thumbnails", 1, int64(i+1))
		all[i].Lease.Context = fmt.Appendf(nil, `{"n":%d}`, i+1)
		all[i].Endpoint.Batch = asyncflow.Batch{MaxTasks: n}
	}
	return all
}

func sendAll(t *testing.T, r *rig, w *worker, n int) []asyncflow.Outcome {
	outcomes := r.Sender.Send(t.Context(), deliveriesTo(w.url, n))
	require.Len(t, w.all(), 1, "exactly one request, whatever its outcome")
	require.Len(t, outcomes, n)
	for i := range outcomes {
		require.Equal(t, w.url, outcomes[i].Endpoint)
		require.Positive(t, outcomes[i].Duration)
		outcomes[i].Endpoint, outcomes[i].Duration = "", 0
	}
	return outcomes
}

// Several deliveries go in one request, in their order, with one id and one signature. Each is the
// same as when it is sent alone.
func TestDeliveriesTogether(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d deliveries", n), func(t *testing.T) {
			w := newWorker(t, reply(202, ""))
			all := deliveriesTo(w.url, n)
			setup(t).Sender.Send(t.Context(), all)
			require.Len(t, w.all(), 1)
			got := w.all()[0]
			require.Equal(t, []string{"thumbnails.1.1.3"}, got.Header.Values("Webhook-Id"))
			var body struct{ Deliveries []json.RawMessage }
			require.NoError(t, json.Unmarshal(got.body, &body))
			require.Len(t, body.Deliveries, n)
			keys := testKeys(t, nodeSecret)
			for i, raw := range body.Deliveries {
				var one struct{ Callback struct{ Token string } }
				require.NoError(t, json.Unmarshal(raw, &one))
				c, err := keys.VerifyCompletion(one.Callback.Token, all[i].Lease.ID)
				require.NoError(t, err)
				require.Equal(t, 3, c.Seq)
				require.Equal(t, string(envelope(all[i], "https://tasks.example.com",
					one.Callback.Token)),
					string(raw))
			}
		})
	}
}

// A worker answers for each task.
func TestResults(t *testing.T) {
	t.Parallel()
	const ok = `{"task_id":"thumbnails.1.1"}`
	failed := func(text string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200, Error: text}
	}
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}
	output := func(text string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200,
			Output: json.RawMessage(text)}
	}
	notResult := "the result is not the JSON object {task_id, output?, outcome?, error?, " +
		"retry_after?, next_stage?, finish?, spawn?, join?}: "
	for name, c := range map[string]struct {
		results string
		first   asyncflow.Outcome
		second  asyncflow.Outcome
	}{
		"both": {ok + `,{"task_id":"thumbnails.1.2","output":{"a": 1 }}`, done,
			output(`{"a": 1 }`)},
		"turned round": {`{"output":2,"task_id":"thumbnails.1.2"} , ` + ok, done, output("2")},
		"no output": {ok + `,{"task_id":"thumbnails.1.2","output":null,"outcome":"done"}`, done,
			done},
		"unlisted": {ok, done, failed("the answer has no result for this task")},
		"none": {``, failed("the answer has no result for this task"),
			failed("the answer has no result for this task")},
		"strangers": {`{"task_id":"thumbnails.1.9"},{"outcome":"fail"},` + ok, done,
			failed("the answer has no result for this task")},
		"other outcome": {ok + `,{"task_id":"thumbnails.1.2","outcome":"accepted"}`, done,
			asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 200}},
		"fail": {ok + `,{"task_id":"thumbnails.1.2","outcome":"fail","error":"no"}`, done,
			asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200, Error: "no"}},
		"cancel": {ok + `,{"task_id":"thumbnails.1.2","outcome":"cancel","error":"no"}`, done,
			asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled, Status: 200, Error: "no"}},
		"retry": {ok +
			`,{"task_id":"thumbnails.1.2","outcome":"retry","error":"busy","retry_after":"30s"}`,
			done,
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200, Error: "busy",
				RetryAfter: 30 * time.Second}},
		"retry in days": {ok +
			`,{"task_id":"thumbnails.1.2","outcome":"retry","retry_after":"1d"}`, done,
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200,
				RetryAfter: 24 * time.Hour}},
		"twice": {ok + `,{"task_id":"thumbnails.1.2","output":1},{"task_id":"thumbnails.1.2","output":1}`,
			done, failed(`the answer has several results for this task; ` +
				`its body begins: {"task_id":"thumbnails.1.2","output":1}`)},
		"unknown outcome": {ok + `,{"task_id":"thumbnails.1.2","outcome":"maybe"}`, done,
			failed(`the answer's outcome is "maybe"; ` +
				`it must be "done", "retry", "snooze", "fail", "cancel" or "accepted"; ` +
				`its body begins: {"task_id":"thumbnails.1.2","outcome":"maybe"}`)},
		"accepted with an output": {ok +
			`,{"task_id":"thumbnails.1.2","outcome":"accepted","output":1}`, done,
			failed("the result has an output, error, retry_after, next_stage, finish or spawn, " +
				`but is accepted: its completion comes later; its body begins: ` +
				`{"task_id":"thumbnails.1.2","outcome":"accepted","output":1}`)},
		"a choice": {ok + `,{"task_id":"thumbnails.1.2","next_stage":"review"}`, done,
			asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Next: "review"}},
		"accepted with a choice": {ok +
			`,{"task_id":"thumbnails.1.2","outcome":"accepted","finish":true}`, done,
			failed("the result has an output, error, retry_after, next_stage, finish or spawn, " +
				`but is accepted: its completion comes later; its body begins: ` +
				`{"task_id":"thumbnails.1.2","outcome":"accepted","finish":true}`)},
		"an error alone": {ok + `,{"task_id":"thumbnails.1.2","error":"no"}`, done,
			failed(`the answer has an error, but no outcome "retry", "snooze", "fail" or "cancel"; ` +
				`its body begins: {"task_id":"thumbnails.1.2","error":"no"}`)},
		"another case": {ok + `,{"Output":1,"task_id":"thumbnails.1.2"}`, done, failed(notResult +
			`unknown field "Output"; its body begins: {"Output":1,"task_id":"thumbnails.1.2"}`)},
		"unknown field": {ok + `,{"ouput":1,"task_id":"thumbnails.1.2"}`, done,
			failed(notResult +
				`unknown field "ouput"; its body begins: {"ouput":1,"task_id":"thumbnails.1.2"}`)},
		"wrong kind": {ok + `,{"error":5,"task_id":"thumbnails.1.2"}`, done,
			failed(notResult +
				`error can't be of the kind number; its body begins: {"error":5,"task_id":"thumbnails.1.2"}`)},
		"wrong time": {`{"retry_after":"soon","task_id":"thumbnails.1.2"},` + ok, done,
			failed(notResult +
				`must be a duration such as "30s" or "7d", not "soon"; ` +
				`its body begins: {"retry_after":"soon","task_id":"thumbnails.1.2"}`)},
		"no objects": {`5,null,"x",[{}],` + ok, done,
			failed("the answer has no result for this task")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorker(t, reply(200, `{"results":[`+c.results+"]}\n"))
			require.Equal(t, []asyncflow.Outcome{c.first, c.second}, sendAll(t, setup(t), w, 2))
		})
	}
}

// An output that is too large or too deep fails its task only.
func TestResultsOutput(t *testing.T) {
	t.Parallel()
	for want, output := range map[string]string{
		"is 1027 bytes":  `"` + strings.Repeat("x", maxOutput+1) + `"`,
		"nested more":    strings.Repeat("[", 129) + strings.Repeat("]", 129),
		"the limit is 1": `"` + strings.Repeat("x", 2*maxOutput) + `"`,
	} {
		t.Run(want, func(t *testing.T) {
			w := newWorker(t,
				reply(200,
					`{"results":[{"task_id":"thumbnails.1.1","output":`+output+
						`},{"task_id":"thumbnails.1.2","output":1}]}`))
			got := sendAll(t, setup(t), w, 2)
			require.Equal(t, asyncflow.OutcomeFailed, got[0].Kind)
			require.Contains(t, got[0].Error, "output")
			require.Contains(t, got[0].Error, want)
			require.Empty(t, got[0].Output)
			require.Equal(t, asyncflow.OutcomeDone, got[1].Kind)
		})
	}
}

// An answer that can't be read, and one that isn't 200, counts for all tasks.
func TestAnswersForAll(t *testing.T) {
	t.Parallel()
	const not = `the answer is not the JSON object ` +
		`{"results": [{task_id, output?, outcome?, error?, retry_after?, next_stage?, finish?, spawn?, join?}, …]}`
	unclear := func(text, body string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200,
			Error: text + "; its body begins: " + body}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   asyncflow.Outcome
	}{
		"accepted": {reply(202, "whatever"),
			asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202}},
		"accepted with results": {reply(202, `{"results":[]}`),
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 202,
				Error: "the answer has the " +
					"status 202, so the report comes later, but its body has \"results\": answer " +
					"with 200; " +
					`its body begins: {"results":[]}`}},
		"no body": {reply(200, ""),
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200,
				Error: `the answer has no body; it must be {"results": [{"task_id": …}, …]}`}},
		"failed": {reply(500, "oh"),
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500,
				Error: "500 Internal Server Error: oh"}},
		"busy": {reply(429, "", "Retry-After: 7"),
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 429,
				Error: "429 Too Many Requests", RetryAfter: 7 * time.Second}},
		"as alone": {reply(200, `{"output":1}`), unclear(not, `{"output":1}`)},
		"a list":   {reply(200, `[]`), unclear(not, `[]`)},
		"no list":  {reply(200, `{"results":null}`), unclear(not, `{"results":null}`)},
		"more": {reply(200, `{"results":[],"output":1}`),
			unclear(not, `{"results":[],"output":1}`)},
		"twice": {reply(200, `{"results":[],"results":[]}`),
			unclear(not, `{"results":[],"results":[]}`)},
		"more after": {reply(200, `{"results":[]} x`),
			unclear("the answer has something after its JSON object", `{"results":[]} x`)},
		"broken": {reply(200, `{"results":[{"task_id":"thumbnails.1.1"},{"task`),
			unclear(not+": unexpected EOF", `{"results":[{"task_id":"thumbnails.1.1"},{"task`)},
		"broken off": {reply(200, `{"results":[{"task_id":"thumbnails.1.1"}`),
			unclear(not+": unexpected EOF", `{"results":[{"task_id":"thumbnails.1.1"}`)},
		"no comma": {reply(200, `{"results":[{} {}]}`),
			unclear(not+": expected comma after array element", `{"results":[{} {}]}`)},
		"another type": {reply(200, `{}`, "Content-Type: text/html"),
			unclear(`the answer has a body of type "text/html"; it must be application/json`,
				`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, []asyncflow.Outcome{c.want, c.want, c.want},
				sendAll(t, setup(t), newWorker(t, c.answer), 3))
		})
	}
}

// An answer may be as large as the answers to its tasks alone, up to a bound.
func TestAnswerGrowsWithItsTasks(t *testing.T) {
	t.Parallel()
	s := setup(t).Sender
	require.Equal(t, maxOutput+answerOverhead, s.maxAnswer(1))
	require.Equal(t, 7*(maxOutput+answerOverhead), s.maxAnswer(7))
	require.Equal(t, maxAnswers, s.maxAnswer(1000))
	s.cfg.MaxOutput = 2 * maxAnswers
	require.Equal(t, 2*maxAnswers+answerOverhead, s.maxAnswer(1000))

	var results []string
	for i := range 40 {
		results = append(results,
			fmt.Sprintf(`{"task_id":"thumbnails.1.%d","output":"%s"}`, i+1,
				strings.Repeat("x", maxOutput-2)))
	}
	w := newWorker(t, reply(200, `{"results":[`+strings.Join(results, ",")+`]}`))
	for _, o := range sendAll(t, setup(t), w, 40) {
		require.Len(t, o.Output, maxOutput)
	}
	r := setup(t)
	w = newWorker(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		for _, err := io.WriteString(rw, `{"results":[`); err == nil; {
			_, err = io.WriteString(rw, `{"task_id":"thumbnails.1.1"},`)
		}
	})
	for _, o := range sendAll(t, r, w, 2) {
		require.Contains(t, o.Error,
			fmt.Sprintf("the limit is %d bytes", 2*(maxOutput+answerOverhead)))
	}
	require.Less(t, r.read.Load(), int64(8*(maxOutput+answerOverhead)))
}

// A missing answer counts for all tasks, whether or not it began.
func TestNoResultsInTime(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"",
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" +
			`{"results":[{"task_id":"thumbnails.1.1"},`} {
		t.Run(fmt.Sprintf("%.15q", start), func(t *testing.T) {
			w := newRawWorker(t, func(c net.Conn) {
				io.WriteString(c, start)
				waitForClose(c)
			})
			all := deliveriesTo(w.url, 2)
			all[0].Timeout = short
			for _, o := range setup(t).Sender.Send(t.Context(), all) {
				require.Equal(t, []any{asyncflow.OutcomeFailed, 0, "no answer within 150ms"},
					[]any{o.Kind, o.Status, o.Error})
			}
		})
	}
}

// Results for tasks that weren't sent change nothing, and are logged.
func TestStrangersAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := setup(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	w := newWorker(t, reply(200, `{"results":[{"task_id":"thumbnails.1.1"},`+
		`{"task_id":"other.1.1","outcome":"fail"},{"task_id":"thumbnails.1.1.3"}]}`))
	require.Equal(t, asyncflow.OutcomeDone, sendAll(t, r, w, 1)[0].Kind)
	require.Contains(t, log.String(), "results=2 task=thumbnails.1.1.3")
}
