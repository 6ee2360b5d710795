package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// Config says how a Worker takes deliveries. Keys is needed, unless Register brings one;
// everything else has a default.
type Config struct {
	// Keys verify deliveries: the secrets of the endpoints (whsec_…) or their public keys
	// (whpk_…). One that fits is enough, so give the old and the new one while a secret is
	// rotated.
	Keys []string
	// Log gets a line for each delivery; nil: slog.Default().
	Log *slog.Logger
	// MaxInFlight bounds the deliveries that are worked on or not yet reported; what comes
	// beyond is answered with 503, which costs the task an attempt. So let the endpoint's
	// max_in_flight be the bound that counts. 0: 1,000.
	MaxInFlight int
	// MaxBody bounds a request in bytes; 0: 8 MiB.
	MaxBody int
	// AnswerWithin is how long the answer to a delivery waits for its handler; after that it
	// is 202. It must be below the stage's timeout. 0: 2 s; less than 0: it doesn't wait.
	AnswerWithin time.Duration
	// Heartbeat is the pause between heartbeats; 0: a third of the time until the deadline,
	// 30 s at most.
	Heartbeat time.Duration
	// Transport carries the reports to asyncflow; nil: the usual one.
	Transport http.RoundTripper
	// Registration, if it is set, has Serve register the handlers; see Register.
	Registration *Registration
	// Grace is how long Serve waits for deliveries under way when it ends; 0: 20 s.
	Grace time.Duration
}

const (
	defaultMaxInFlight  = 1000
	defaultMaxBody      = 8 << 20
	defaultAnswerWithin = 2 * time.Second
	defaultGrace        = 20 * time.Second
)

func (c Config) withDefaults() Config {
	c.Log = cmp.Or(c.Log, slog.Default())
	c.MaxInFlight = cmp.Or(c.MaxInFlight, defaultMaxInFlight)
	c.MaxBody = cmp.Or(c.MaxBody, defaultMaxBody)
	c.AnswerWithin = cmp.Or(c.AnswerWithin, defaultAnswerWithin)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	return c
}

func (c Config) validate() error {
	switch {
	case c.MaxInFlight < 0:
		return asyncflow.InvalidField("MaxInFlight", "is %d; it must not be below 0", c.MaxInFlight)
	case c.MaxBody < 0:
		return asyncflow.InvalidField("MaxBody", "is %d; it must not be below 0", c.MaxBody)
	case c.Heartbeat < 0:
		return asyncflow.InvalidField("Heartbeat", "is %s; it must not be below 0s", c.Heartbeat)
	case c.Grace < 0:
		return asyncflow.InvalidField("Grace", "is %s; it must not be below 0s", c.Grace)
	case len(c.Keys) == 0 && c.Registration == nil:
		return asyncflow.InvalidField("Keys", "is required: nothing could be verified")
	}
	return nil
}

// Worker takes deliveries and hands them to its handlers. It is an http.Handler, safe for
// concurrent use. Close it after the server that serves it has been shut down.
type Worker struct {
	cfg      Config
	verifier *signing.Verifier
	reporter *Reporter
	requests *requests

	// work is the parent of the handlers' contexts, reports that of all calls to asyncflow.
	work, reports           context.Context
	stopWork, stopReporting func()

	mu       sync.Mutex
	handlers map[stageName]*handler
	learned  map[string]bool // public keys that came by Register
	inFlight int
	closing  bool
	idle     chan struct{} // closed when closing and nothing is in flight
}

// New returns a Worker without handlers. Its error is a CodeInvalid one that names the
// field.
func New(cfg Config) (*Worker, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	verifier, err := signing.NewVerifier(cfg.Keys...)
	if err != nil {
		return nil, fmt.Errorf("worker.New: %w", err)
	}
	w := &Worker{cfg: cfg, verifier: verifier, reporter: NewReporter(cfg.Transport),
		requests: newRequests(),
		handlers: map[stageName]*handler{}, learned: map[string]bool{}, idle: make(chan struct{})}
	work, stopWork := context.WithCancelCause(context.Background())
	w.work, w.stopWork = work, func() { stopWork(ErrStopped) }
	w.reports, w.stopReporting = context.WithCancel(context.Background())
	return w, nil
}

// Reporter returns what the worker itself reports with.
func (w *Worker) Reporter() *Reporter { return w.reporter }

// stages returns what there are handlers for, in order.
func (w *Worker) stages() []stageName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []stageName
	for name := range w.handlers {
		all = append(all, name)
	}
	slices.SortFunc(all, func(a, b stageName) int {
		return cmp.Or(cmp.Compare(a.taskType, b.taskType), cmp.Compare(a.stage, b.stage))
	})
	return all
}

// handlerOf returns the handler of all deliveries of a request, which are of one stage.
func (w *Worker) handlerOf(name stageName) *handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handlers[name]
}

// admit makes room for n deliveries. A batch that is larger than all the room there is
// gets it alone.
func (w *Worker) admit(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.inFlight > 0 && w.inFlight+n > w.cfg.MaxInFlight {
		return false
	}
	w.inFlight += n
	return true
}

func (w *Worker) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight--; w.inFlight == 0 && w.closing {
		close(w.idle)
	}
}

// InFlight returns how many deliveries are worked on or not yet reported.
func (w *Worker) InFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight
}

// closeGrace is how long deliveries that were cut short may take to say so.
const closeGrace = 5 * time.Second

// Close takes no more deliveries (503) and waits until those under way are reported. When
// ctx ends first, the contexts of their handlers are cancelled, and those that return within
// 5 s report that they failed, so that the tasks are tried again at once. The error says
// that some were cut short.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closing {
		w.closing = true
		if w.inFlight == 0 {
			close(w.idle)
		}
	}
	w.mu.Unlock()
	defer w.stopReporting()
	select {
	case <-w.idle:
		return nil
	case <-ctx.Done():
	}
	cut := w.InFlight()
	w.stopWork()
	select {
	case <-w.idle:
	case <-time.After(closeGrace):
	}
	if cut == 0 {
		return nil
	}
	return fmt.Errorf("worker: %d deliveries were cut short: %w", cut, ctx.Err())
}
