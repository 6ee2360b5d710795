package callbacks

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

// reply answers with a status, a body and headers ("Name: value").
func reply(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// sendOnce sends one delivery to a worker and checks what holds for any outcome.
func sendOnce(t *testing.T, r *rig, w *worker, timeout time.Duration) asyncflow.Outcome {
	d := deliveryTo(w.url)
	d.Timeout = timeout
	o := r.Send(t.Context(), d)
	require.Len(t, w.all(), 1, "exactly one request, whatever its outcome")
	require.Equal(t, w.url, o.Endpoint)
	require.Positive(t, o.Duration)
	require.Less(t, o.Duration, ample/2)
	require.True(t, utf8.ValidString(o.Error), "%q", o.Error)
	require.NotContains(t, o.Error, "\x00")
	require.LessOrEqual(t, len(o.Error), MaxErrorBytes+len("…"))
	return o
}

// requireOutcome compares outcomes except for the endpoint and the duration.
func requireOutcome(t *testing.T, want, got asyncflow.Outcome) {
	got.Endpoint, got.Duration = "", 0
	require.Equal(t, want, got)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const notObject = "the answer is not the JSON object {output?, outcome?, error?, " +
		"retry_after?, next_stage?, finish?, spawn?, join?}: "
	done := func(status int, output string) asyncflow.Outcome {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: status}
		if output != "" {
			o.Output = json.RawMessage(output)
		}
		return o
	}
	failed := func(status int, text string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: status, Error: text}
	}
	// unclear is the outcome of an answer that can't be read: its error quotes the body.
	unclear := func(text, body string) asyncflow.Outcome {
		return failed(200, text+"; its body begins: "+body)
	}
	later := func(status int, text string, after time.Duration) asyncflow.Outcome {
		o := failed(status, text)
		o.RetryAfter = after
		return o
	}
	rejected := func(text string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200, Error: text}
	}
	accepted := asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202}
	const notLater = "the answer has the status 202, so the report comes later, but its body has "
	plain := "Content-Type: text/plain"
	limit := "the answer's output is 1025 bytes; the limit is 1024"
	// document returns a JSON document of n bytes.
	document := func(length int) string {
		return `{"output":"` + strings.Repeat("x", length-13) + `"}`
	}

	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   asyncflow.Outcome
	}{
		"200 empty":       {reply(200, ""), done(200, "")},
		"200 empty, text": {reply(200, "", plain), done(200, "")},
		"200 no output":   {reply(200, `{}`), done(200, "")},
		"200 unknown fields": {reply(200, `{"status":"ok"}`),
			unclear(notObject+`unknown field "status"`, `{"status":"ok"}`)},
		"200 output": {reply(200, `{"output":{"b": 1.0,"a":"\u00e9"}}`),
			done(200, `{"b": 1.0,"a":"\u00e9"}`)},
		"200 output, charset": {reply(200, `{"output":1}`,
			"Content-Type: application/json; charset=utf-8"), done(200, `1`)},
		"200 outcome done": {reply(200, `{"outcome":"done","output":[1]}`), done(200, `[1]`)},
		"201":              {reply(201, `{"output":1}`), done(201, `1`)},
		"204":              {reply(204, ""), done(204, "")},
		"202":              {reply(202, ""), accepted},
		"202 with a body": {reply(202, `{"job":7,"error":null,"outcome":"accepted"}`),
			accepted},
		"202 with a text body": {reply(202, "queued", plain), accepted},
		"202 with an output": {reply(202, `{"output":1}`),
			failed(202, notLater+`"output": answer with `+
				`200; its body begins: {"output":1}`)},
		"202 with an output that is text": {reply(202, `{"output":"accepted"}`), failed(202,
			notLater+`"output": answer with 200; its body begins: {"output":"accepted"}`)},
		"202 with an outcome": {reply(202, `{"outcome":"fail","error":"no such image"}`),
			failed(202,
				notLater+`"outcome": answer with 200; its body begins: {"outcome":"fail","error":"no such image"}`)},
		"202 with an error in another case": {reply(202, `{"Error":"no"}`), failed(202,
			notLater+`"Error": answer with 200; its body begins: {"Error":"no"}`)},
		"200 outcome fail": {reply(200, `{"outcome":"fail","error":"no such image"}`),
			rejected("no such image")},
		"200 outcome cancel": {reply(200, `{"outcome":"cancel","error":"withdrawn"}`),
			asyncflow.Outcome{
				Kind: asyncflow.OutcomeCancelled, Error: "withdrawn", Status: 200}},
		"200 outcome fail, no text": {reply(200, `{"outcome":"fail"}`), rejected("")},
		"200 outcome retry": {reply(200,
			`{"outcome":"retry","error":"busy","retry_after":"1m30s"}`),
			later(200, "busy", 90*time.Second)},
		"200 outcome retry in days": {reply(200, `{"outcome":"retry","retry_after":"1d12h"}`),
			later(200, "", 36*time.Hour)},
		"200 outcome snooze for weeks": {reply(200, `{"outcome":"snooze","retry_after":"1w"}`),
			asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed, Status: 200,
				RetryAfter: 7 * 24 * time.Hour}},
		"200 next_stage": {reply(200, `{"output":1,"next_stage":"review"}`),
			asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200,
				Output: json.RawMessage(`1`), Next: "review"}},
		"200 finish": {reply(200, `{"outcome":"done","finish":true}`),
			asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Finish: true}},
		"200 no choice": {reply(200, `{"next_stage":"","finish":false}`), done(200, "")},
		"200 next_stage and finish": {reply(200, `{"next_stage":"review","finish":true}`),
			unclear("the answer has both next_stage and finish",
				`{"next_stage":"review","finish":true}`)},
		"200 failed with next_stage": {reply(200, `{"outcome":"fail","next_stage":"review"}`),
			unclear(`the answer has next_stage or finish, but the outcome "fail"`,
				`{"outcome":"fail","next_stage":"review"}`)},
		"200 next_stage null": {reply(200, `{"next_stage":null}`),
			unclear(notObject+"next_stage must not be null", `{"next_stage":null}`)},
		"202 next_stage": {reply(202, `{"next_stage":"review"}`), failed(202,
			notLater+`"next_stage": answer with 200; its body begins: {"next_stage":"review"}`)},
		"200 outcome snooze": {reply(200,
			`{"outcome":"snooze","error":"no label yet","retry_after":"720h"}`),
			asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed, Status: 200, Error: "no label yet",
				RetryAfter: 30 * 24 * time.Hour}},
		"200 outcome snooze, no pause": {reply(200, `{"outcome":"snooze"}`),
			unclear(`the answer's outcome is "snooze", and its retry_after is 0s; `+
				`it must be 1s to 720h`, `{"outcome":"snooze"}`)},
		"200 outcome snooze for long": {reply(200, `{"outcome":"snooze","retry_after":"721h"}`),
			unclear(`the answer's outcome is "snooze", and its retry_after is 721h; `+
				`it must be 1s to 720h`, `{"outcome":"snooze","retry_after":"721h"}`)},
		"200 outcome snooze with an output": {reply(200,
			`{"outcome":"snooze","retry_after":"5s","output":1}`),
			unclear(`the answer has an output, but the outcome "snooze"`,
				`{"outcome":"snooze","retry_after":"5s","output":1}`)},
		"200 outcome unknown": {reply(200, `{"outcome":"maybe"}`),
			unclear(`the answer's outcome is "maybe"; it must be "done", "retry", "snooze", "fail" or "cancel"`,
				`{"outcome":"maybe"}`)},
		"200 text body": {reply(200, "OK", plain),
			unclear(`the answer has a body of type "text/plain"; it must be application/json, or empty`,
				"OK")},
		"200 bad type": {reply(200, "{}", "Content-Type: ;"),
			unclear(`the answer has a body of type ";"; it must be application/json, or empty`,
				"{}")},
		"200 broken JSON": {reply(200, `{"output":`),
			unclear(notObject+"unexpected EOF", `{"output":`)},
		"200 two documents": {reply(200, `{} {}`),
			unclear("the answer has something after its JSON object", "{} {}")},
		"200 more after it": {reply(200, `{} }`),
			unclear("the answer has something after its JSON object", "{} }")},
		"200 null":        {reply(200, `null`), unclear(notObject+"it can't be null", "null")},
		"200 null output": {reply(200, `{"output":null}`), done(200, "")},
		"200 null outcome": {reply(200, `{"outcome":null}`),
			unclear(notObject+"outcome must not be null", `{"outcome":null}`)},
		"200 another case": {reply(200, `{"Output":1}`),
			unclear(notObject+`unknown field "Output"`, `{"Output":1}`)},
		"200 twice": {reply(200, `{"output":1,"outp\u0075t":2}`),
			unclear(notObject+"output is given twice", `{"output":1,"outp\u0075t":2}`)},
		"200 an error alone": {reply(200, `{"error":"no disk"}`),
			unclear(`the answer has an error, but no outcome "retry", "snooze", "fail" or "cancel"`,
				`{"error":"no disk"}`)},
		"200 an error, yet done": {reply(200, `{"outcome":"done","error":"no disk"}`),
			unclear(`the answer has an error, but no outcome "retry", "snooze", "fail" or "cancel"`,
				`{"outcome":"done","error":"no disk"}`)},
		"200 empty texts": {reply(200, `{"outcome":"","error":"","retry_after":"0s"}`),
			done(200, "")},
		"200 retry_after alone": {reply(200, `{"retry_after":"5s"}`),
			unclear(`the answer has retry_after, but no outcome "retry" or "snooze"`, `{"retry_after":"5s"}`)},
		"200 failed with an output": {reply(200, `{"outcome":"fail","output":1}`),
			unclear(`the answer has an output, but the outcome "fail"`,
				`{"outcome":"fail","output":1}`)},
		"200 a list": {reply(200, `[]`),
			unclear(notObject+"it can't be of the kind array", "[]")},
		"200 output too deep": {reply(200,
			`{"output":`+strings.Repeat("[", 129)+strings.Repeat("]", 129)+`}`),
			unclear("the answer's output is nested more than 128 deep",
				`{"output":`+strings.Repeat("[", 129)+strings.Repeat("]", 129)+"}")},
		"200 output not UTF-8": {reply(200, "{\"output\":\"\xff\"}"),
			unclear("the answer's output is not valid UTF-8", "{\"output\":\"\uFFFD\"}")},
		"200 raw NUL": {reply(200, "{\"output\":\"\x00\"}"),
			unclear(notObject+`invalid character '\x00' in string literal`, `{"output":""}`)},
		"200 error of odd bytes": {reply(200,
			"{\"outcome\":\"retry\",\"error\":\" a\\u0000b\xffc \"}"), failed(200, "ab\uFFFDc")},
		"200 error too long": {reply(200,
			`{"outcome":"fail","error":"`+strings.Repeat("é", 450)+`"}`),
			rejected(strings.Repeat("é", 450))},
		"200 retry_after no text": {reply(200, `{"retry_after":`+strings.Repeat("9", 900)+`}`),
			unclear(notObject+"retry_after can't be of the kind number",
				`{"retry_after":`+strings.Repeat("9", 485)+"…")},
		"200 retry_after no time": {reply(200, `{"retry_after":"`+strings.Repeat("9", 900)+`"}`),
			unclear(notObject+
				`must be a duration such as "30s" or "7d", not "`+strings.Repeat("9", 40)+`…"`,
				`{"retry_after":"`+strings.Repeat("9", 484)+"…")},
		"200 a long field": {reply(200, `{"`+strings.Repeat("f", 1000)+`":1}`),
			unclear((notObject + `unknown field "` + strings.Repeat("f", 1000))[:500]+"…",
				`{"`+strings.Repeat("f", 498)+"…")},
		"200 largest":  {reply(200, document(1035)), done(200, document(1035)[10:1034])},
		"200 oversize": {reply(200, document(1036)), unclear(limit, document(1036)[:500]+"…")},
		"200 far oversize": {reply(200, document(1024+answerOverhead+1)),
			unclear("the answer is too large: the limit is 17408 bytes", document(2000)[:500]+"…")},

		"301": {reply(301, "", "Location: /elsewhere"),
			failed(301, "301 Moved Permanently: redirects are not followed")},
		"307": {reply(307, "moved", "Location: /elsewhere"),
			failed(307, "307 Temporary Redirect: redirects are not followed")},
		"308 no Location": {reply(308, ""),
			failed(308, "308 Permanent Redirect: redirects are not followed")},
		"300": {reply(300, "choose"), failed(300, "300 Multiple Choices: choose")},
		"304": {reply(304, ""), failed(304, "304 Not Modified")},
		"400": {reply(400, `{"error":"bad"}`),
			failed(400, `400 Bad Request: {"error":"bad"}`)},
		"404": {reply(404, ""), failed(404, "404 Not Found")},
		"410": {reply(410, ""), failed(410, "410 Gone")},
		"500": {reply(500, " panic: boom \n", plain),
			failed(500, "500 Internal Server Error: panic: boom")},
		"500 long body": {reply(500, strings.Repeat("é", 400), plain),
			failed(500, "500 Internal Server Error: "+strings.Repeat("é", 250)+"…")},
		"500 half a rune": {reply(500, "x"+strings.Repeat("é", 400), plain),
			failed(500, "500 Internal Server Error: x"+strings.Repeat("é", 249)+"…")},
		"500 oversize": {reply(500, strings.Repeat("y", 100_000), plain),
			failed(500, "500 Internal Server Error: "+strings.Repeat("y", 500)+"…")},
		"500 odd bytes": {reply(500, "\x00\xff\xfeboom\x00", plain),
			failed(500, "500 Internal Server Error: \uFFFDboom")},
		"500 Retry-After": {reply(500, "", "Retry-After: 5"),
			failed(500, "500 Internal Server Error")},
		"599": {reply(599, ""), failed(599, "599")},
		"429": {reply(429, ""), failed(429, "429 Too Many Requests")},
		"429 seconds": {reply(429, "", "Retry-After: 7"),
			later(429, "429 Too Many Requests", 7*time.Second)},
		"503 seconds": {reply(503, "busy", "Retry-After: 120"),
			later(503, "503 Service Unavailable: busy", 2*time.Minute)},
		"503 1e18 seconds": {reply(503, "", "Retry-After: 1e18"),
			later(503, "503 Service Unavailable", 24*time.Hour)},
		"503 many digits": {reply(503, "", "Retry-After: 99999999999999999999"),
			later(503, "503 Service Unavailable", 24*time.Hour)},
		"503 negative": {reply(503, "", "Retry-After: -5"), failed(503, "503 Service Unavailable")},
		"503 NaN": {reply(503, "", "Retry-After: NaN"),
			failed(503, "503 Service Unavailable")},
		"503 garbage": {reply(503, "", "Retry-After: soon"),
			failed(503, "503 Service Unavailable")},
		"503 past date": {reply(503, "", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"),
			failed(503, "503 Service Unavailable")},
		"503 far date": {reply(503, "", "Retry-After: Fri, 31 Dec 2999 23:59:59 GMT"),
			later(503, "503 Service Unavailable", 24*time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireOutcome(t, c.want, sendOnce(t, setup(t), newWorker(t, c.answer), ample))
		})
	}
}

func TestRetryAfterDate(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)
	o := sendOnce(t, setup(t), newWorker(t, reply(429, "", "Retry-After: "+at)), ample)
	require.InDelta(t, 10*time.Minute, o.RetryAfter, float64(ample))
}

func TestRetryAfterStaysInBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(),
			rapid.StringMatching(`[-+]?[0-9.]{0,30}(e[0-9]{1,3})?`),
			rapid.SampledFrom([]string{"NaN", "nan", "Inf", "+Inf", "-inf", "infinity", "0x1p-2",
				"1e999", "-1e999", "1_0"})).Draw(t, "value")
		for _, status := range []int{429, 503} {
			got := retryAfter(value, status)
			require.GreaterOrEqual(t, got, time.Duration(0))
			require.LessOrEqual(t, got, 24*time.Hour)
		}
		require.Zero(t, retryAfter(value, 500))
	})
}

// A worker's text is stored clean: valid UTF-8, no NUL, bounded length.
func TestClean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(4, 100).Draw(t, "most")
		text := string(
			rapid.SliceOf(
				rapid.SampledFrom([]byte("a \x00\xc3\xa9\xff\xed\xa0\x80\xf0\x9f\x98\x80"))).Draw(t,
				"text"))
		got := Clean(text, most)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x00")
		require.LessOrEqual(t, len(got), most+len("…"))
		require.Equal(t, strings.TrimSpace(got), got)
	})
	require.Equal(t, "as it was", Clean("as it was", 100))
}

func TestRedirectTargetSeesNothing(t *testing.T) {
	t.Parallel()
	target := newWorker(t, reply(200, ""))
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			w := newWorker(t, reply(status, "", "Location: "+target.url))
			o := sendOnce(t, setup(t), w, ample)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Equal(t, status, o.Status)
		})
	}
	for _, location := range []string{"http://[bad", "ftp://127.0.0.1/", "javascript:alert(1)",
		""} {
		t.Run(fmt.Sprintf("%q", location), func(t *testing.T) {
			o := sendOnce(t, setup(t), newWorker(t, reply(307, "", "Location: "+location)), ample)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
		})
	}
	require.Empty(t, target.all())
}

// A broken network, or a hostile worker, makes the attempt fail, and costs little.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	timeUp := "no answer within " + short.String()
	for name, c := range map[string]struct {
		answer  func(net.Conn)
		timeout time.Duration
		status  int
		text    string // part of the error
	}{
		"closed at once": {func(net.Conn) {}, ample, 0, "EOF"},
		"reset at once":  {reset, ample, 0, "connection reset by peer"},
		"reset in the body": {func(c net.Conn) {
			write(head + "Content-Length: 100\r\n\r\n{\"out")(c)
			reset(c)
		}, ample, 200, "the answer broke off"},
		"closed in the headers": {write(head), ample, 0, "EOF"},
		"Content-Length too long": {write(head + "Content-Length: 100\r\n\r\n{\"output\":1}"),
			ample, 200,
			"the answer broke off: unexpected EOF"},
		"Content-Length short": {write(head + "Content-Length: 5\r\n\r\n{\"output\":1}"), ample,
			200, "unexpected EOF"},
		"Content-Length negative": {write(head + "Content-Length: -1\r\n\r\n"), ample, 0,
			"Content-Length"},
		"Content-Length twice": {write(head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
			ample,
			0, "Content-Length"},
		"chunk cut off": {write(head + "Transfer-Encoding: chunked\r\n\r\nff\r\n{}"), ample, 200,
			"the answer broke off: unexpected EOF"},
		"chunks without an end": {write(head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"),
			ample, 200, "the answer broke off: unexpected EOF"},
		"endless trailer": {write(head + "Transfer-Encoding: chunked\r\n\r\n0\r\n" +
			strings.Repeat("\x01", 3000) + "\r\n\r\n"), ample, 200, "the answer broke off"},
		"bad chunk": {write(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"), ample,
			200, "the answer broke off"},
		"not HTTP":  {write("SSH-2.0-OpenSSH_9.2\r\n"), ample, 0, "malformed HTTP"},
		"no answer": {waitForClose, short, 0, timeUp},
		"headers never end": {func(c net.Conn) { write(head)(c); waitForClose(c) }, short, 0,
			timeUp},
		"body never comes": {func(c net.Conn) {
			write(head + "Content-Length: 2\r\n\r\n")(c)
			waitForClose(c)
		}, short, 0, timeUp},
		"body never ends": {func(c net.Conn) {
			write(head + "\r\n{}")(c)
			waitForClose(c)
		}, short, 0, timeUp},
		"a byte at a time":     {dribble(head+"\r\n", "x"), short, 0, timeUp},
		"headers byte by byte": {dribble(head+"X: ", "x"), short, 0, timeUp},
		"500, then nothing": {func(c net.Conn) {
			write("HTTP/1.1 500 No\r\n\r\nboom")(c)
			waitForClose(c)
		}, 20 * short, 500, "500 Internal Server Error: boom"},
		"huge header": {write(head + "X: " + strings.Repeat("x", 100_000) + "\r\n\r\n"), ample, 0,
			"server response headers exceeded"},
		"endless headers": {writeForEver(head, "X: x\r\n"), ample, 0,
			"server response headers exceeded"},
		"endless header": {writeForEver(head+"X: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), ample, 0,
			"server response headers exceeded"},
		"endless body": {writeForEver(head+"\r\n", strings.Repeat("x", 1000)), ample, 200,
			"the answer is too large: the limit is 17408 bytes"},
		"endless chunks": {writeForEver(head+"Transfer-Encoding: chunked\r\n\r\n", "4\r\nxxxx\r\n"),
			ample, 200, "the answer is too large"},
		"endless 500": {writeForEver("HTTP/1.1 500 No\r\n\r\n", strings.Repeat("x", 1000)), ample,
			500, "500 Internal Server Error: xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			o := sendOnce(t, r, newRawWorker(t, c.answer), c.timeout)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Equal(t, c.status, o.Status, o.Error)
			require.Contains(t, o.Error, c.text)
			require.Nil(t, o.Output)
			require.Less(t, r.read.Load(), int64(1<<20), "bytes read from a hostile worker")
		})
	}
}

// dribble writes start at once and then part after part, in small packets, until
// the other side goes away.
func dribble(start, part string) func(net.Conn) {
	return func(c net.Conn) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for _, err := io.WriteString(c, start); err == nil; _, err = io.WriteString(c, part) {
			<-tick.C
		}
	}
}

// A 202 counts by its status, whatever happens to its body.
func TestAcceptedWithABrokenBody(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 202 Accepted\r\n"
	for name, answer := range map[string]func(net.Conn){
		"cut off": write(head + "Content-Length: 100\r\n\r\n{"),
		"endless": writeForEver(head+"\r\n", strings.Repeat("x", 1000)),
		"hanging": func(c net.Conn) { write(head + "\r\n")(c); waitForClose(c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			o := sendOnce(t, r, newRawWorker(t, answer), 20*short)
			requireOutcome(t, asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202}, o)
			require.Less(t, r.read.Load(), int64(1<<20))
		})
	}
}

// No more of a 202's body is read than of any other answer, whatever its fields.
func TestAcceptedWithAnEndlessBody(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\n"
	const slack = 64 << 10 // of buffers
	for name, answer := range map[string]func(net.Conn){
		"text":   writeForEver(head+"\r\n{\"note\":\"", strings.Repeat("x", 10_000)),
		"fields": writeForEver(head+"\r\n{\"a\":1", strings.Repeat(`,"note":"x"`, 1000)),
		"depth":  writeForEver(head+"\r\n{\"a\":", strings.Repeat(`[`, 10_000)),
		"spaces": writeForEver(head+"\r\n{", strings.Repeat(" ", 10_000)),
		"chunks": writeForEver(head+"Transfer-Encoding: chunked\r\n\r\n6\r\n{\"a\":[\r\n",
			strings.Repeat("2\r\n1,\r\n", 1000)),
		"slow": dribble(head+"\r\n{\"note\":\"", "x"),
	} {
		for _, n := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				t.Parallel()
				r := setup(t)
				all := deliveriesTo(newRawWorker(t, answer).url, n)
				if n == 1 {
					all[0].Endpoint.Batch = asyncflow.Batch{}
				}
				all[0].Timeout = 20 * short
				outcomes := r.Sender.Send(t.Context(), all)
				require.Len(t, outcomes, n)
				for _, o := range outcomes {
					requireOutcome(t, asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted,
						Status: 202}, o)
				}
				most := r.maxAnswer(n)
				if name == "chunks" {
					most *= 4 // of the 7 bytes of a chunk, 2 are the body's
				}
				require.LessOrEqual(t, r.read.Load(), int64(most+slack))
			})
		}
	}
}

// The first fields of a 202's body are looked at, however many there are.
func TestAcceptedWithManyFields(t *testing.T) {
	t.Parallel()
	body := func(others int) []byte {
		return []byte("{" + strings.Repeat(`"note":"x",`, others) + `"output":1}`)
	}
	require.Equal(t, "output", answerField(body(maxAcceptedFields-1), answerFields, false))
	require.Empty(t, answerField(body(maxAcceptedFields), answerFields, false))
}

// Nothing is decompressed: neither a bomb nor an honest document.
func TestGzipIsNotUnpacked(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"honest": `{"output":1}`,
		"bomb":   `{"output":"` + strings.Repeat("0", 8<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			io.WriteString(z, document)
			require.NoError(t, z.Close())
			w := newWorker(t, reply(200, packed.String(), "Content-Encoding: gzip"))
			r := setup(t, func(c *Config) { c.MaxOutput = 1 << 20 })
			o := sendOnce(t, r, w, ample)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Contains(t, o.Error, "the answer is not the JSON object")
			require.Empty(t, w.all()[0].Header.Values("Accept-Encoding"), "none was asked for")
		})
	}
}
