package callbacks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// answer is the optional body of a worker's 2xx response.
type answer struct {
	output     json.RawMessage
	outcome    string // "", "done", "retry", "snooze", "fail" or "cancel"
	error      string
	retryAfter asyncflow.Duration
	nextStage  string
	finish     bool
	spawn      json.RawMessage
	join       json.RawMessage
}

// field returns where the value of a field goes; nil if it is unknown.
func (a *answer) field(name string) any {
	switch name {
	case "output":
		return &a.output
	case "outcome":
		return &a.outcome
	case "error":
		return &a.error
	case "retry_after":
		return &a.retryAfter
	case "next_stage":
		return &a.nextStage
	case "finish":
		return &a.finish
	case "spawn":
		return &a.spawn
	case "join":
		return &a.join
	}
	return nil
}

// excerptBytes is how many bytes of a failed response are kept with the attempt.
const excerptBytes = 500

// answerOverhead is how many bytes may be in an answer besides its output.
const answerOverhead = 16 << 10

// readStatus returns the outcome that the status of an answer means. If more is true, the body
// decides, too: then the outcome is a failure without a reason yet. fields are the fields that may
// be in such a body; none of them may be in the body of a 202.
func readStatus(a transport.Answer, fields []string) (o asyncflow.Outcome, more bool) {
	o = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: a.Status}
	switch {
	case a.Status == http.StatusAccepted:
		o.Kind = asyncflow.OutcomeAccepted
		if name := answerField(a.Body, fields, a.BodyErr != nil); name != "" {
			o.Kind = asyncflow.OutcomeFailed
			o.Error = withExcerpt(fmt.Errorf("the answer has the status 202, so the report comes "+
				"later, but its body has %q: answer with 200", cut(name, 100)), a.Body)
		}
	case a.Status < 200 || a.Status > 299:
		o.Error = describe(a)
		o.RetryAfter = retryAfter(a.RetryAfter(), a.Status)
	case a.BodyErr != nil:
		o.Error = withExcerpt(a.BodyErr, a.Body)
	default:
		return o, true
	}
	return o, false
}

var (
	answerFields = []string{"outcome", "output", "error", "retry_after", "next_stage",
		"finish", "spawn", "join"}
	resultsFields = append([]string{"results"}, answerFields...)
)

// maxAcceptedFields is how many fields of the body of a 202 are looked at. Reading each takes some
// 3 µs, so a batch's 16 MiB of short fields would take seconds.
const maxAcceptedFields = 1000

// answerField returns which of some fields is in the body of a 202, in any case, and "" if none is:
// a worker that says more than "accepted" is to hear that it was not understood. The body may be
// long, so it is read field by field. Of a body that was cut off, as it was too long, the last
// field counts without its end.
func answerField(body []byte, fields []string, cutOff bool) string {
	d := json.NewDecoder(bytes.NewReader(body))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return ""
	}
	var value json.RawMessage
	for range maxAcceptedFields {
		if !d.More() {
			return ""
		}
		token, err := d.Token()
		if err != nil {
			return ""
		}
		name, _ := token.(string)
		err = d.Decode(&value)
		if err != nil && (!cutOff || !errors.Is(err, io.ErrUnexpectedEOF)) {
			return ""
		}
		says := string(value) != "null" &&
			(name != "outcome" || string(value) != `"`+resultAccepted+`"`)
		if err != nil {
			says = name != "outcome"
		}
		if says && slices.ContainsFunc(fields,
			func(f string) bool { return strings.EqualFold(f, name) }) {
			return name
		}
	}
	return ""
}

// readAnswer completes the outcome of a delivery from the body of its 2xx response. A body that
// can't be read makes the attempt fail: what the worker meant to say is lost.
func readAnswer(
	o asyncflow.Outcome, contentType string, body []byte, maxOutput int,
) asyncflow.Outcome {
	if len(body) == 0 {
		o.Kind = asyncflow.OutcomeDone
		return o
	}
	if err := readDocument(contentType, body, maxOutput, &o); err != nil {
		o.Error = withExcerpt(err, body)
	}
	return o
}

// readDocument reads the JSON body of a 2xx answer into o. Its error tells the worker why the body
// can't be read.
func readDocument(contentType string, body []byte, maxOutput int, o *asyncflow.Outcome) error {
	if err := checkJSON(contentType, ", or empty"); err != nil {
		return err
	}
	var a answer
	err := readObject(body, a.field)
	if err == errAfter {
		return err
	}
	if err != nil {
		return errors.New(
			"the answer is not the JSON object {output?, outcome?, error?, retry_after?, " +
				"next_stage?, finish?, spawn?, join?}: " + plain(err))
	}
	return a.complete(o, limits{maxOutput, asyncflow.MaxSpawn},
		`"done", "retry", "snooze", "fail" or "cancel"`)
}

var errAfter = errors.New("the answer has something after its JSON object")

// checkJSON checks the content type of a body. or names an alternative, for the error.
func checkJSON(contentType, or string) error {
	if media, _, err := mime.ParseMediaType(contentType); err != nil ||
		media != "application/json" {
		return fmt.Errorf("the answer has a body of type %q; it must be application/json%s",
			cut(contentType, 100), or)
	}
	return nil
}

// limits are bounds of an answer.
type limits struct {
	output int // bytes
	spawn  int // tasks that it starts
}

// complete completes an outcome from the fields of an answer. known lists the outcomes that may be
// in the answer, for the error.
func (a *answer) complete(o *asyncflow.Outcome, most limits, known string) error {
	if isNull(a.output) { // as many libraries write an output that is absent
		a.output = nil
	}
	isDone := a.outcome == "" || a.outcome == "done"
	snoozes := a.outcome == "snooze"
	again := snoozes || a.outcome == "retry"
	switch {
	case !isDone && !again && a.outcome != "fail" && a.outcome != "cancel":
		return fmt.Errorf("the answer's outcome is %q; it must be %s", cut(a.outcome, 100), known)
	case isDone && a.error != "":
		return errors.New(
			`the answer has an error, but no outcome "retry", "snooze", "fail" or "cancel"`)
	case !isDone && len(a.output) > 0:
		return fmt.Errorf("the answer has an output, but the outcome %q", a.outcome)
	case !again && !a.retryAfter.IsZero():
		return errors.New(`the answer has retry_after, but no outcome "retry" or "snooze"`)
	case !isDone && (a.nextStage != "" || a.finish):
		return fmt.Errorf("the answer has next_stage or finish, but the outcome %q", a.outcome)
	case a.nextStage != "" && a.finish:
		return errors.New("the answer has both next_stage and finish")
	case !isDone && (!isNull(a.spawn) || !isNull(a.join)):
		return fmt.Errorf("the answer has spawn or join, but the outcome %q", a.outcome)
	case snoozes:
		if err := asyncflow.CheckSnooze(a.retryAfter); err != nil {
			return fmt.Errorf("the answer's outcome is \"snooze\", and its %w", err)
		}
	}
	if err := checkOutput(a.output, most.output); err != nil {
		return err
	}
	spawn, err := readSpawn(a.spawn, most.output, most.spawn)
	if err != nil {
		return err
	}
	o.Error, o.RetryAfter = Clean(a.error, MaxErrorBytes), a.retryAfter.Std()
	switch a.outcome {
	case "", "done":
		done := *o
		done.Kind, done.Output, done.Error = asyncflow.OutcomeDone, a.output, ""
		done.Next, done.Finish, done.Spawn = a.nextStage, a.finish, spawn
		if err := readJoin(a.join, &done); err != nil {
			return err
		}
		*o = done
	case "snooze":
		o.Kind = asyncflow.OutcomeSnoozed
	case "fail":
		o.Kind = asyncflow.OutcomeRejected
	case "cancel":
		o.Kind = asyncflow.OutcomeCancelled
	}
	return nil
}

// plain says in plain words why a document can't be read.
func plain(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s can't be of the kind %s", cmp.Or(wrong.Field, "it"), wrong.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func checkOutput(output json.RawMessage, most int) error {
	if len(output) == 0 {
		return nil
	}
	return asyncflow.CheckDocument("the answer's output", output, most)
}

// describe says what a failed answer was: its status and the start of its body.
func describe(a transport.Answer) string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)))
	if isRedirect(a.Status) {
		return text + ": redirects are not followed"
	}
	if excerpt := Clean(string(a.Body), excerptBytes); excerpt != "" {
		text += ": " + excerpt
	}
	return text
}

// isRedirect reports whether a status sends the client to another URL (RFC 9110, section 15.4).
// Another 3xx, such as 304, does not.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// withExcerpt returns the reason why an answer can't be read, and the start of its body. Both may
// quote what the worker sent.
func withExcerpt(err error, body []byte) string {
	what := Clean(err.Error(), excerptBytes)
	if excerpt := Clean(string(body), excerptBytes); excerpt != "" {
		what += "; its body begins: " + excerpt
	}
	return what
}

// retryAfter reads the Retry-After header of a 429 or 503 answer: seconds or an HTTP date. It
// returns 0 for a value that can't be read, and at most a day.
func retryAfter(value string, status int) time.Duration {
	const most = 24 * time.Hour
	if value == "" ||
		(status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable) {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && !math.IsNaN(seconds) {
		return time.Duration(max(0, min(seconds, most.Seconds())) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, min(time.Until(at), most))
	}
	return 0
}

// MaxErrorBytes bounds the error text that is kept with an attempt.
const MaxErrorBytes = 4096

// Clean makes a worker's text fit to be stored: valid UTF-8, no NUL, and at most the given number
// of bytes.
func Clean(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	return strings.TrimSpace(cut(text, most))
}

// cut shortens text to at most the given number of bytes. It splits no character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + ellipsis
}

// ellipsis is at the end of a text that was cut.
const ellipsis = "…"
