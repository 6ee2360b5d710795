package callbacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/asyncflow/asyncflow"
)

// result is a worker's answer to one of several deliveries.
type result struct {
	taskID string
	answer
}

// field returns where the value of a field goes; nil if it is unknown.
func (r *result) field(name string) any {
	if name == "task_id" {
		return &r.taskID
	}
	return r.answer.field(name)
}

// isEmpty reports whether an answer says nothing beside its outcome.
func (a *answer) isEmpty() bool {
	return isNull(a.output) && a.error == "" && a.retryAfter.IsZero() && a.nextStage == "" &&
		!a.finish && isNull(a.spawn) && isNull(a.join)
}

// resultAccepted is an outcome that only a result may give: the completion comes later.
const resultAccepted = "accepted"

// maxAnswers bounds the answer to a batch, in bytes.
const maxAnswers = 16 << 20

// maxAnswer returns how many bytes the answer to n deliveries may take.
func (s *Sender) maxAnswer(n int) int {
	one := s.cfg.MaxOutput + answerOverhead
	return max(one, min(n*one, maxAnswers))
}

var (
	errNoBody   = errors.New(`the answer has no body; it must be {"results": [{"task_id": …}, …]}`)
	errUnlisted = errors.New("the answer has no result for this task")
	errTwice    = errors.New("the answer has several results for this task")
)

// readResults completes the outcomes of deliveries from the body of their 2xx response. A result
// that can't be read makes the attempt at its task fail; a body that can't be read makes all of
// them fail.
func (s *Sender) readResults(
	all []asyncflow.Delivery, o asyncflow.Outcome, contentType string, body []byte,
) []asyncflow.Outcome {
	o.Error = errUnlisted.Error()
	r := resultReader{
		outcomes: toAll(all, o),
		listed:   make([]bool, len(all)),
		tasks:    make(map[string]int, len(all)),
		most:     limits{s.cfg.MaxOutput, asyncflow.MaxBatchSpawn},
	}
	for i := range all {
		r.tasks[all[i].Lease.ID.String()] = i
	}
	err := checkJSON(contentType, "")
	switch {
	case len(body) == 0:
		err = errNoBody
	case err == nil:
		err = r.read(body)
	}
	if err != nil {
		o.Error = withExcerpt(err, body)
		return toAll(all, o)
	}
	if r.strangers > 0 {
		s.cfg.Log.Warn("an answer has results for tasks that weren't in the request",
			"tenant", all[0].Tenant, "endpoint", all[0].Endpoint.ID,
			"results", r.strangers, "task", cut(r.stranger, 100))
	}
	return r.outcomes
}

// resultReader reads the results of an answer into outcomes.
type resultReader struct {
	outcomes []asyncflow.Outcome
	listed   []bool
	tasks    map[string]int // a task's position in outcomes
	most     limits         // of the next result

	strangers int // results for tasks that weren't sent
	stranger  string
}

// read reads {"results": […]}. Its error tells the worker why the body can't be read.
func (r *resultReader) read(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	for _, want := range []json.Token{json.Delim('{'), "results", json.Delim('[')} {
		if err := expect(d, want); err != nil {
			return err
		}
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return noResults(err)
		}
		r.take(raw)
	}
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} {
		if err := expect(d, want); err != nil {
			return err
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errAfter
	}
	return nil
}

// expect reads the token that must come next.
func expect(d *json.Decoder, want json.Token) error {
	switch got, err := d.Token(); {
	case errors.Is(err, io.EOF):
		return noResults(io.ErrUnexpectedEOF)
	case err != nil:
		return noResults(err)
	case got != want:
		return errNotResults
	}
	return nil
}

var errNotResults = errors.New(`the answer is not the JSON object ` +
	`{"results": [{task_id, output?, outcome?, error?, retry_after?, next_stage?, finish?, ` +
	`spawn?, join?}, …]}`)

func noResults(err error) error { return errors.New(errNotResults.Error() + ": " + plain(err)) }

// take stores a result, or the reason why it can't be read.
func (r *resultReader) take(raw []byte) {
	var one result
	err := readObject(raw, one.field)
	if err != nil { // the task may be missing from what was read
		err = errors.New("the result is not the JSON object " +
			"{task_id, output?, outcome?, error?, retry_after?, next_stage?, finish?, spawn?, join?}: " +
			plain(err))
		var only struct {
			TaskID string `json:"task_id"`
		}
		json.Unmarshal(raw, &only)
		one.taskID = only.TaskID
	}
	i, ok := r.tasks[one.taskID]
	if !ok {
		r.strangers++
		r.stranger = one.taskID
		return
	}
	o := &r.outcomes[i]
	switch {
	case r.listed[i]:
		*o = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: o.Status}
		err = errTwice
	case err == nil && one.outcome == resultAccepted && one.isEmpty():
		o.Kind, o.Error = asyncflow.OutcomeAccepted, ""
	case err == nil && one.outcome == resultAccepted:
		err = errors.New("the result has an output, error, retry_after, next_stage, finish or " +
			"spawn, but is accepted: its completion comes later")
	case err == nil:
		err = one.complete(o, r.most,
			`"done", "retry", "snooze", "fail", "cancel" or "accepted"`)
		r.most.spawn -= len(o.Spawn)
	}
	r.listed[i] = true
	if err != nil {
		o.Error = withExcerpt(err, raw)
	}
}

// readObject reads a JSON object. target returns where the value of a field goes; nil: the field is
// unknown. What package json would pass over is an error, as the worker meant to say something: a
// name in other case or given twice, a null that isn't an output, and text after the object.
func readObject(doc []byte, target func(name string) any) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	switch first, err := d.Token(); {
	case err != nil:
		return cutOff(err)
	case first == nil:
		return errors.New("it can't be null")
	case first != json.Delim('{'):
		return json.Unmarshal(doc, &struct{}{}) // names the kind, or is the error of its syntax
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return cutOff(err)
		}
		name, _ := token.(string)
		into := target(name)
		switch {
		case into == nil:
			return fmt.Errorf("unknown field %q", name)
		case seen[name]:
			return fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if err := readField(d, name, into); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return cutOff(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errAfter
	}
	return nil
}

// readField reads the value of a field.
func readField(d *json.Decoder, name string, into any) error {
	if output, ok := into.(*json.RawMessage); ok {
		return cutOff(d.Decode(output))
	}
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return cutOff(err)
	}
	if string(raw) == "null" {
		return fmt.Errorf("%s must not be null", name)
	}
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		wrong.Field = name
	}
	return err
}

// cutOff names the end of a document that is cut off.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
