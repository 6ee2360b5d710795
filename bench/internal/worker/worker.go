// Package worker is the worker that tasks are delivered to, in a process of its own. It keeps when
// each task came for the first time.
package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// Mode is the argument that makes the bench program a worker.
const Mode = "worker"

// Paths of the worker.
const (
	DeliverPath  = "/deliver"  // answers 200 to a task, with no body
	AfterPath    = "/after/"   // and a duration such as 20ms: the same after that time
	BatchPath    = "/batch"    // answers for each task of a batch
	AcceptPath   = "/accept"   // answers 202, and completes the task later
	ChildPath    = "/child"    // answers 200 with {"n": …} to a child
	JoinPath     = "/join"     // answers 200 to a task with the results of such children
	HangPath     = "/hang"     // never answers
	ToldPath     = "/told"     // answers 200 to an event of on_final
	LatenessPath = "/lateness" // returns how long after their ends such events came
	RawPath      = "/raw"      // reads the body, answers 200, does nothing else
	CountPath    = "/count"    // returns the Counts
	ArrivalsPath = "/arrivals" // ?from=&to= returns the arrival times of these tasks
)

// Counts are the deliveries that the worker received.
type Counts struct {
	Deliveries int `json:"deliveries"` // all
	Distinct   int `json:"distinct"`   // without those that came again
}

// Run serves until its input ends. The first line of its output is its address.
func Run(input io.Reader, output io.Writer) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	done, stop := context.WithCancel(context.Background())
	defer stop()
	host, _ := os.Hostname()
	server := &http.Server{
		Handler:           named(host, (&worker{}).routes(newCompleter(done))),
		ReadHeaderTimeout: time.Minute,
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		_ = server.Close()
	}()
	fmt.Fprintln(output, l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// named makes all answers name the worker, as the worker packages do by default.
func named(name string, routes http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set(asyncflow.WorkerHeader, name)
		routes.ServeHTTP(rw, r)
	})
}

type worker struct {
	buffers sync.Pool

	mu       sync.Mutex
	counts   Counts
	arrivals []int64 // Unix nanoseconds by the number in the task's context; 0: not yet
	late     []time.Duration
}

func (w *worker) routes(c *completer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+DeliverPath, w.deliver)
	mux.HandleFunc("POST "+AfterPath+"{delay}", w.deliverSlowly)
	mux.HandleFunc("POST "+BatchPath, w.deliverBatch)
	mux.HandleFunc("POST "+ChildPath, w.deliverChild)
	mux.HandleFunc("POST "+JoinPath, w.deliverJoin)
	mux.HandleFunc("POST "+AcceptPath, func(rw http.ResponseWriter, r *http.Request) {
		w.accept(rw, r, c)
	})
	mux.HandleFunc("POST "+HangPath, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	})
	mux.HandleFunc("POST "+ToldPath, w.noteEvent)
	mux.HandleFunc("GET "+LatenessPath, w.lateness)
	mux.HandleFunc("POST "+RawPath, w.raw)
	mux.HandleFunc("GET "+CountPath, w.count)
	mux.HandleFunc("GET "+ArrivalsPath, w.arrivalTimes)
	return mux
}

func (w *worker) deliver(rw http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	body, release, err := w.body(r)
	defer release()
	n, ok := payload.Number(body)
	if err != nil || !ok {
		http.Error(rw, "a body with context.n is expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived(n, now)
}

// deliverSlowly answers after the delay in the path, as a worker with work to do does.
func (w *worker) deliverSlowly(rw http.ResponseWriter, r *http.Request) {
	delay, err := time.ParseDuration(r.PathValue("delay"))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusNotFound)
		return
	}
	w.deliver(rw, r)
	select {
	case <-r.Context().Done():
	case <-time.After(delay):
	}
}

// arrived notes a delivery. The caller holds the lock.
func (w *worker) arrived(n int, now int64) {
	for len(w.arrivals) <= n {
		w.arrivals = append(w.arrivals, make([]int64, max(1024, len(w.arrivals)))...)
	}
	w.counts.Deliveries++
	if w.arrivals[n] == 0 {
		w.arrivals[n] = now
		w.counts.Distinct++
	}
}

// body reads the body of a request into a buffer, which the caller releases.
func (w *worker) body(r *http.Request) (body []byte, release func(), err error) {
	b, _ := w.buffers.Get().(*bytes.Buffer)
	if b == nil {
		b = &bytes.Buffer{}
	}
	b.Reset()
	_, err = b.ReadFrom(r.Body)
	return b.Bytes(), func() { w.buffers.Put(b) }, err
}

func (w *worker) raw(rw http.ResponseWriter, r *http.Request) {
	_, release, err := w.body(r)
	release()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
	}
}

func (w *worker) count(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	c := w.counts
	w.mu.Unlock()
	_ = json.NewEncoder(rw).Encode(c)
}

func (w *worker) arrivalTimes(rw http.ResponseWriter, r *http.Request) {
	from, err1 := strconv.Atoi(r.FormValue("from"))
	to, err2 := strconv.Atoi(r.FormValue("to"))
	if err1 != nil || err2 != nil || from < 0 || to < from {
		http.Error(rw, "from and to are expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	times := make([]int64, to-from)
	copy(times, w.arrivals[min(from, len(w.arrivals)):])
	w.mu.Unlock()
	_ = json.NewEncoder(rw).Encode(times)
}
