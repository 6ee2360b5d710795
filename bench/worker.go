package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// workerMode is the argument that makes this program a worker.
const workerMode = "worker"

// Paths of the worker.
const (
	deliveryPath = "/deliver"  // where tasks are delivered
	batchPath    = "/batch"    // where batches of them are
	acceptPath   = "/accept"   // where tasks are that are completed later
	hangPath     = "/hang"     // never answers
	rawPath      = "/raw"      // reads the body, answers 200, does nothing else
	countPath    = "/count"    // the counts so far
	arrivalsPath = "/arrivals" // ?from=&to= the arrival times of these tasks
)

// runWorker serves until its input ends. The first line of its output is its
// address.
func runWorker(input io.Reader, output io.Writer) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w := &worker{}
	done, stop := context.WithCancel(context.Background())
	defer stop()
	accept := newAcceptor(done)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+deliveryPath, w.deliver)
	mux.HandleFunc("POST "+batchPath, w.deliverBatch)
	mux.HandleFunc("POST "+acceptPath, func(rw http.ResponseWriter, r *http.Request) { w.deliverLater(rw, r, accept) })
	mux.HandleFunc("POST "+hangPath, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("POST "+rawPath, w.raw)
	mux.HandleFunc("GET "+countPath, w.count)
	mux.HandleFunc("GET "+arrivalsPath, w.arrivalTimes)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
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

// worker answers every delivery with 200 and no body, and keeps when each task
// came for the first time.
type worker struct {
	buffers sync.Pool

	mu         sync.Mutex
	deliveries int
	distinct   int
	arrivals   []int64 // Unix nanoseconds by the number in the task's context; 0: not yet
}

// counts is what the worker has received.
type counts struct {
	Deliveries int `json:"deliveries"` // all
	Distinct   int `json:"distinct"`   // without those that came again
}

func (w *worker) deliver(rw http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	body, release, err := w.body(r)
	defer release()
	n, ok := numberIn(body)
	if err != nil || !ok {
		http.Error(rw, "a body with context.n is expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived(n, now)
}

// arrived notes a delivery. The caller holds the lock.
func (w *worker) arrived(n int, now int64) {
	for len(w.arrivals) <= n {
		w.arrivals = append(w.arrivals, make([]int64, max(1024, len(w.arrivals)))...)
	}
	w.deliveries++
	if w.arrivals[n] == 0 {
		w.arrivals[n] = now
		w.distinct++
	}
}

// body reads a request's body into a buffer that is to be released.
func (w *worker) body(r *http.Request) (body []byte, release func(), err error) {
	b, _ := w.buffers.Get().(*bytes.Buffer)
	if b == nil {
		b = &bytes.Buffer{}
	}
	b.Reset()
	_, err = b.ReadFrom(r.Body)
	return b.Bytes(), func() { w.buffers.Put(b) }, err
}

// numberIn returns the number that appendContext wrote, without reading the
// whole document: what the worker does with it is not what is measured.
func numberIn(delivery []byte) (int, bool) {
	text, _ := between(delivery, `"context":{"n":`, ",")
	n, err := strconv.Atoi(string(text))
	return n, err == nil && n >= 0
}

// between returns what stands between two texts, and what is behind it; nil: nothing does.
func between(in []byte, before, after string) (text, rest []byte) {
	_, rest, found := bytes.Cut(in, []byte(before))
	text, rest, ended := bytes.Cut(rest, []byte(after))
	if !found || !ended {
		return nil, nil
	}
	return text, rest
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
	c := counts{w.deliveries, w.distinct}
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
