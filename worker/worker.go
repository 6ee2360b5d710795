package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// Config configures a Worker. Without Keys, nothing is verified, and so nothing accepted, until
// Register brings a key; there is a default for every other field.
type Config struct {
	// Keys verify deliveries: the secrets of the endpoints (whsec_…) or their public keys
	// (whpk_…). A delivery needs to verify with one of them, so give the old and the new key while
	// a secret is rotated. A worker that only claims tasks, see Claim, needs none.
	Keys []string
	// Name is the name of this worker, which is shown with the tasks that it works on: 1 to 64
	// printable ASCII characters without spaces. "": the name of the host; NoName: none is sent.
	Name string
	// Log gets a line for each delivery; nil: slog.Default().
	Log *slog.Logger
	// MaxInFlight bounds the deliveries that are worked on or not yet reported. Further ones are
	// answered with 503, which costs the task an attempt. So set the endpoint's max_in_flight to a
	// lower value. 0: 1,000.
	MaxInFlight int
	// MaxBody bounds a request in bytes; 0: 8 MiB.
	MaxBody int
	// AnswerWithin is how long the answer to a delivery waits for its handler; after that the
	// answer is 202. It must be below the stage's timeout. 0: 2 s; less than 0: the answer doesn't
	// wait.
	AnswerWithin time.Duration
	// Heartbeat is the interval of heartbeats. 0: a third of the time until the deadline, at most
	// 30 s.
	Heartbeat time.Duration
	// Transport sends the reports to asyncflow; nil: a default transport.
	Transport http.RoundTripper
	// Registration, if it is set, makes Serve register the handlers; see Register.
	Registration *Registration
	// Grace is how long Serve waits for deliveries in flight when it ends; 0: 20 s.
	Grace time.Duration
}

// NoName, as the Name of a Worker, means that the worker doesn't name itself.
const NoName = "-"

// hostName returns the name of the host as the name of a worker; "" if it can't be one.
func hostName() string {
	host, _ := os.Hostname()
	return asyncflow.WorkerName(host[:min(len(host), asyncflow.MaxWorkerName)])
}

const (
	defaultMaxInFlight  = 1000
	defaultMaxBody      = 8 << 20
	defaultAnswerWithin = 2 * time.Second
	defaultGrace        = 20 * time.Second
)

func (c Config) withDefaults() Config {
	switch c.Name {
	case "":
		c.Name = hostName()
	case NoName:
		c.Name = ""
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	c.MaxInFlight = cmp.Or(c.MaxInFlight, defaultMaxInFlight)
	c.MaxBody = cmp.Or(c.MaxBody, defaultMaxBody)
	c.AnswerWithin = cmp.Or(c.AnswerWithin, defaultAnswerWithin)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	return c
}

func (c Config) validate() error {
	switch {
	case c.Name != "" && asyncflow.WorkerName(c.Name) == "":
		return asyncflow.InvalidField("Name", "is %.80q; it must be 1 to %d printable ASCII "+
			"characters without spaces", c.Name, asyncflow.MaxWorkerName)
	case c.MaxInFlight < 0:
		return asyncflow.InvalidField("MaxInFlight", "is %d; it must not be below 0", c.MaxInFlight)
	case c.MaxBody < 0:
		return asyncflow.InvalidField("MaxBody", "is %d; it must not be below 0", c.MaxBody)
	case c.Heartbeat < 0:
		return asyncflow.InvalidField("Heartbeat", "is %s; it must not be below 0s", c.Heartbeat)
	case c.Grace < 0:
		return asyncflow.InvalidField("Grace", "is %s; it must not be below 0s", c.Grace)
	}
	return nil
}

// Worker passes deliveries to its handlers. It is an http.Handler, and safe for concurrent use.
// Close it after its server was shut down.
type Worker struct {
	cfg      Config
	verifier *signing.Verifier
	reporter *Reporter
	requests *requests

	// work is the parent of the handlers' contexts; reports is the parent of all calls to
	// asyncflow.
	work, reports           context.Context
	stopWork, stopReporting func()

	mostClaims int // open ones of a stage

	mu       sync.Mutex
	handlers map[stageName]*handler
	final    FinalHandler    // nil: the worker handles no events
	learned  map[string]bool // public keys that came by Register
	inFlight int
	closing  bool
	idle     chan struct{} // closed when closing and nothing is in flight
}

// New returns a Worker without handlers. Its error is CodeInvalid, and names the field.
func New(cfg Config) (*Worker, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	verifier, err := signing.NewVerifier(cfg.Keys...) // without keys it verifies nothing
	if err != nil {
		return nil, fmt.Errorf("worker.New: %w", err)
	}
	w := &Worker{
		cfg:      cfg,
		verifier: verifier,
		reporter: NewReporter(cfg.Transport).Named(cfg.Name),
		requests: newRequests(),

		mostClaims: asyncflow.MaxOpenClaims,
		handlers:   map[stageName]*handler{},
		learned:    map[string]bool{},
		idle:       make(chan struct{}),
	}
	work, stopWork := context.WithCancelCause(context.Background())
	w.work, w.stopWork = work, func() { stopWork(ErrStopped) }
	w.reports, w.stopReporting = context.WithCancel(context.Background())
	return w, nil
}

// Reporter returns the reporter that the worker itself uses.
func (w *Worker) Reporter() *Reporter { return w.reporter }

// stages returns the stages with handlers, in order.
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

// handlerOf returns the handler of a stage.
func (w *Worker) handlerOf(name stageName) *handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handlers[name]
}

// admit reserves capacity for n deliveries, and reports whether there is enough. A batch that is
// larger than the whole capacity is admitted alone.
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

// closeGrace is how long interrupted handlers get to return.
const closeGrace = 5 * time.Second

// Close refuses new deliveries (503) and waits until deliveries in flight are reported. If ctx ends
// first, Close cancels the contexts of their handlers. Handlers that return within 5 s report a
// failure, so that their tasks are retried at once. The error says how many deliveries were cut
// short.
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
