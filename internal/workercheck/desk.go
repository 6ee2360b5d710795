package workercheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
)

// desk takes the reports on deliveries, in place of a node.
type desk struct {
	url     string // where a worker reaches it
	keys    *callbacks.Keys
	server  *http.Server
	extends time.Duration // by which a heartbeat puts the deadline off

	mu       sync.Mutex
	attempts map[asyncflow.TaskID][]*attempt // the one that was sent last at the end
}

// openDesk begins to take reports.
func openDesk(cfg Config, keys *callbacks.Keys) (*desk, error) {
	if u, err := url.Parse(cfg.CallbackURL); err != nil || cfg.CallbackURL != "" &&
		(u.Host == "" || u.RawQuery != "" || strings.ContainsAny(cfg.CallbackURL, `"\`)) {
		return nil, asyncflow.InvalidField("callback_url",
			"is %q; it must be an absolute URL such as http://host.docker.internal:9999", cfg.CallbackURL)
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("reports can't be taken: %w", err)
	}
	d := &desk{
		url:      strings.TrimRight(cfg.CallbackURL, "/"),
		keys:     keys,
		extends:  cfg.ReportTime,
		attempts: map[asyncflow.TaskID][]*attempt{},
	}
	if d.url == "" {
		d.url = "http://" + l.Addr().String()
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/callbacks/{task}/{verb}", d.take)
	d.server = &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
	}
	go d.server.Serve(l)
	return d, nil
}

func (d *desk) close() { d.server.Close() }

// expect returns what will be reported on an attempt.
func (d *desk) expect(task asyncflow.TaskID, seq int) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts[task] {
		if a.seq == seq {
			return a
		}
	}
	a := &attempt{seq: seq, changed: make(chan struct{})}
	d.attempts[task] = append(d.attempts[task], a)
	return a
}

// attemptOf returns the attempt that a token is for. With an error it is the last one
// of the task, if there is one.
func (d *desk) attemptOf(r *http.Request) (*attempt, error) {
	task, err := asyncflow.ParseTaskID(r.PathValue("task"))
	if err != nil {
		return nil, err
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		err = errors.New("it has no Authorization: Bearer and the delivery's callback.token")
	}
	var c callbacks.Completion
	if err == nil {
		c, err = d.keys.VerifyCompletion(token, task)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var last *attempt
	for _, a := range d.attempts[task] {
		if last = a; err == nil && a.seq == c.Seq {
			break
		}
	}
	return last, err
}

// maxReport bounds a report in bytes.
const maxReport = asyncflow.DefaultMaxContext + 16<<10

// take takes a report.
func (d *desk) take(w http.ResponseWriter, r *http.Request) {
	a, err := d.attemptOf(r)
	if a == nil {
		reply(w, http.StatusNotFound, problem(http.StatusNotFound, "there is no such task"))
		return
	}
	one := report{verb: r.PathValue("verb")}
	if err != nil {
		one.status, one.problem = http.StatusUnauthorized, err.Error()
	} else if err := one.read(w, r); err != nil {
		one.status, one.problem = http.StatusBadRequest, err.Error()
		if asyncflow.CodeOf(err) == asyncflow.CodeTooLarge {
			one.status = http.StatusRequestEntityTooLarge
		}
	}
	one = a.add(one)
	var doc any = api.CallbackResult{Status: one.task}
	switch {
	case one.status != http.StatusOK:
		doc = problem(one.status, one.problem)
	case one.verb == verbHeartbeat && one.task == asyncflow.StatusRunning:
		doc = api.HeartbeatResult{Status: one.task, Deadline: time.Now().Add(d.extends)}
	}
	reply(w, one.status, doc)
}

// codes are those of the problems that a node answers a report with.
var codes = map[int]asyncflow.Code{
	http.StatusBadRequest:            asyncflow.CodeInvalid,
	http.StatusUnauthorized:          asyncflow.CodeUnauthenticated,
	http.StatusNotFound:              asyncflow.CodeNotFound,
	http.StatusConflict:              asyncflow.CodeConflict,
	http.StatusRequestEntityTooLarge: asyncflow.CodeTooLarge,
	http.StatusServiceUnavailable:    asyncflow.CodeUnavailable,
}

func problem(status int, detail string) api.Problem {
	return api.Problem{
		Type:   "about:blank",
		Title:  http.StatusText(status),
		Status: status,
		Code:   string(codes[status]),
		Detail: detail,
	}
}

func reply(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // whoever reported may be gone
}

// What a worker may report.
const (
	verbComplete  = "complete"
	verbFail      = "fail"
	verbHeartbeat = "heartbeat"
	verbProgress  = "progress"
)

// report is a call of the worker's, and how it was answered.
type report struct {
	verb    string
	output  json.RawMessage // of complete
	error   string          // of fail
	problem string          // why it was refused
	status  int             // 0: what it reports isn't wrong in itself
	task    asyncflow.Status
}

// read reads the body of a report. Its error says, to the worker, what is wrong with it.
func (one *report) read(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	if err != nil {
		return err
	}
	var into any
	switch one.verb {
	case verbComplete:
		into = &api.Completion{}
	case verbFail:
		into = &api.Failure{}
	case verbProgress:
		into = &api.Progress{}
	case verbHeartbeat:
		return nil
	default:
		return fmt.Errorf("%q is none of complete, fail, heartbeat and progress", one.verb)
	}
	if len(body) == 0 && one.verb == verbComplete {
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		media != "application/json" {
		return errors.New("its Content-Type must be application/json")
	}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(into); err != nil {
		return fmt.Errorf("its body can't be read: %w", err)
	}
	switch doc := into.(type) {
	case *api.Completion:
		one.output = json.RawMessage(doc.Output)
		if len(one.output) > 0 {
			return asyncflow.CheckDocument("output", one.output, asyncflow.DefaultMaxContext)
		}
	case *api.Failure:
		if one.error = doc.Error; one.error == "" {
			return errors.New("error is required")
		}
	}
	return nil
}
