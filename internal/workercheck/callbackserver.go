package workercheck

import (
	"encoding/json"
	"errors"
	"fmt"
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

// callbackServer receives the reports on deliveries, in place of a node.
type callbackServer struct {
	url     string // where the worker reaches it
	keys    *callbacks.Keys
	server  *http.Server
	extends time.Duration // how far a heartbeat postpones the deadline

	mu       sync.Mutex
	attempts map[asyncflow.TaskID][]*attempt // the one that was sent last is the last one
}

// newCallbackServer starts to receive reports.
func newCallbackServer(cfg Config, keys *callbacks.Keys) (*callbackServer, error) {
	if u, err := url.Parse(cfg.CallbackURL); err != nil || cfg.CallbackURL != "" &&
		(u.Host == "" || u.RawQuery != "" || strings.ContainsAny(cfg.CallbackURL, `"\`)) {
		return nil, asyncflow.InvalidField("callback_url",
			"is %q; it must be an absolute URL such as http://host.docker.internal:9999",
			cfg.CallbackURL)
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("reports can't be taken: %w", err)
	}
	s := &callbackServer{
		url:      strings.TrimRight(cfg.CallbackURL, "/"),
		keys:     keys,
		extends:  cfg.ReportTime,
		attempts: map[asyncflow.TaskID][]*attempt{},
	}
	if s.url == "" {
		s.url = "http://" + l.Addr().String()
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/callbacks/{task}/{verb}", s.take)
	s.server = &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
	}
	go s.server.Serve(l)
	return s, nil
}

func (s *callbackServer) close() { s.server.Close() }

// expect returns the attempt with a seq, which collects the reports on it.
func (s *callbackServer) expect(task asyncflow.TaskID, seq int) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts[task] {
		if a.seq == seq {
			return a
		}
	}
	a := &attempt{seq: seq, changed: make(chan struct{})}
	s.attempts[task] = append(s.attempts[task], a)
	return a
}

// attemptOf returns the attempt that a request's token is for. With an error, it returns the last
// attempt of the task, if there is one.
func (s *callbackServer) attemptOf(r *http.Request) (*attempt, error) {
	task, err := asyncflow.ParseTaskID(r.PathValue("task"))
	if err != nil {
		return nil, err
	}
	c, err := s.completionOf(r, task)
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *attempt
	for _, a := range s.attempts[task] {
		if last = a; err == nil && a.seq == c.Seq {
			break
		}
	}
	return last, err
}

// completionOf returns what the token of a request is good for.
func (s *callbackServer) completionOf(
	r *http.Request, task asyncflow.TaskID,
) (callbacks.Completion, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return callbacks.Completion{},
			errors.New("it has no Authorization: Bearer and the delivery's callback.token")
	}
	return s.keys.VerifyCompletion(token, task)
}

// take receives a report.
func (s *callbackServer) take(w http.ResponseWriter, r *http.Request) {
	a, err := s.attemptOf(r)
	if a == nil {
		reply(w, http.StatusNotFound, problem(http.StatusNotFound, "there is no such task"))
		return
	}
	one := report{verb: r.PathValue("verb")}
	if err != nil {
		one.status, one.problem = http.StatusUnauthorized, err.Error()
	} else if err := one.read(w, r); err != nil {
		one.status, one.problem = http.StatusBadRequest, err.Error()
		switch asyncflow.CodeOf(err) {
		case asyncflow.CodeTooLarge:
			one.status = http.StatusRequestEntityTooLarge
		case asyncflow.CodeSpawn:
			one.status = http.StatusUnprocessableEntity
		}
	}
	one = a.add(one)
	var doc any = api.CallbackResult{Status: one.task}
	switch {
	case one.status != http.StatusOK:
		doc = problem(one.status, one.problem)
	case one.verb == verbHeartbeat && one.task == asyncflow.StatusRunning:
		doc = api.HeartbeatResult{Status: one.task, Deadline: time.Now().Add(s.extends)}
	}
	reply(w, one.status, doc)
}

// codes are the codes of the problems with which a node answers reports.
var codes = map[int]asyncflow.Code{
	http.StatusBadRequest:            asyncflow.CodeInvalid,
	http.StatusUnauthorized:          asyncflow.CodeUnauthenticated,
	http.StatusNotFound:              asyncflow.CodeNotFound,
	http.StatusConflict:              asyncflow.CodeConflict,
	http.StatusRequestEntityTooLarge: asyncflow.CodeTooLarge,
	http.StatusUnprocessableEntity:   asyncflow.CodeSpawn,
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
	_ = json.NewEncoder(w).Encode(doc) // the worker may be gone
}
