package workercheck

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// ownClient stands in for http.DefaultClient. A server of httptest that ends closes the idle
// connections of the default transport, which may break a request of a parallel test.
var ownClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

// badWorker is a worker written by hand, with its faults.
type badWorker struct {
	t      *testing.T
	secret string
	batch  int

	noEcho, echoesAll, verifiesNothing, parsesFirst, crashes bool // which requests it believes
	noPast, noFuture, oneSignature                           bool
	misspells, strict, readsOnce, forgets, waitsNot          bool // in what it does
	forgetsStale, drops, faints, dies                        bool
	needsPage, choosesOften, joinsOften, joinsKeys, misnames bool
	limit                                                    int64

	later, silent, once, insists, deaf, slow bool // in what it reports
	// of slow work, with a heartbeat after each if it is deaf; 0: 10
	steps int
	pause time.Duration // after a step; 0: 150 ms
	wait  time.Duration // before it reports again; 0: 50 ms
	rest  time.Duration // of slow work after the last step
}

var badWorkers = map[string]struct {
	worker badWorker
	fails  []string
}{
	"good":               {badWorker{}, nil},
	"good, later":        {badWorker{later: true}, nil},
	"no echo":            {badWorker{noEcho: true}, []string{"challenge"}},
	"echoes for anybody": {badWorker{echoesAll: true}, []string{"challenge by a stranger"}},
	"verifies nothing": {badWorker{verifiesNothing: true},
		[]string{"challenge by a stranger", "bad signature", "altered body", "missing headers",
			"old timestamp", "timestamp ahead"}},
	"signs what it parsed": {badWorker{parsesFirst: true},
		[]string{"altered body", "unknown fields"}},
	"needs headers":      {badWorker{crashes: true}, []string{"missing headers"}},
	"takes the old":      {badWorker{noPast: true}, []string{"old timestamp"}},
	"takes the future":   {badWorker{noFuture: true}, []string{"timestamp ahead"}},
	"one signature":      {badWorker{oneSignature: true}, []string{"rotated secret"}},
	"has a long name":    {badWorker{misnames: true}, []string{"name"}},
	"dies of a delivery": {badWorker{dies: true}, []string{"delivery"}},
	"misspells":          {badWorker{misspells: true}, []string{"delivery"}},
	"strict":             {badWorker{strict: true}, []string{"unknown fields", "fields of stages"}},
	"needs a page":       {badWorker{needsPage: true}, []string{"fields of stages"}},
	"chooses at random": {badWorker{choosesOften: true},
		[]string{"duplicate delivery", "duplicate at once", "stale attempt"}},
	"chooses at random, later": {badWorker{later: true, choosesOften: true},
		[]string{"duplicate delivery", "duplicate at once", "stale attempt"}},
	"waits at random": {badWorker{joinsOften: true},
		[]string{"duplicate delivery", "duplicate at once", "stale attempt"}},
	"waits for keys":        {badWorker{joinsKeys: true}, []string{"delivery"}},
	"waits for keys, later": {badWorker{later: true, joinsKeys: true}, []string{"delivery"}},
	"small":                 {badWorker{limit: 128 << 10}, []string{"large context"}},
	"reads once": {badWorker{readsOnce: true},
		[]string{"large context", "slow connection"}},
	"counts": {badWorker{forgets: true},
		[]string{"duplicate delivery", "duplicate at once", "stale attempt"}},
	"counts while at it": {badWorker{waitsNot: true}, []string{"duplicate at once"}},
	"counts attempts":    {badWorker{forgetsStale: true}, []string{"stale attempt"}},
	"faints":             {badWorker{faints: true}, []string{"broken connection"}},
	"drops one":          {badWorker{batch: 3, drops: true}, []string{"batch"}},
	"never reports":      {badWorker{later: true, silent: true}, []string{"delivery"}},
	"reports once":       {badWorker{later: true, once: true}, []string{"report again"}},
	"insists":            {badWorker{later: true, insists: true}, []string{"attempt over"}},
	"no heartbeat":       {badWorker{later: true, slow: true, steps: 20}, []string{"heartbeats"}},
	"insists, at leisure": {badWorker{later: true, insists: true, wait: 1500 * time.Millisecond},
		[]string{"attempt over"}},
	"deaf": {badWorker{later: true, slow: true, deaf: true}, []string{"cancel"}},
	"deaf, beats seldom": {badWorker{later: true, slow: true, deaf: true,
		pause: 600 * time.Millisecond}, []string{"cancel"}},
	"deaf, done late": {badWorker{later: true, slow: true, deaf: true, steps: 1,
		pause: 600 * time.Millisecond, rest: 2 * time.Second}, []string{"cancel"}},
}

func (b badWorker) handler() http.Handler {
	verifier, err := signing.NewVerifier(b.secret)
	require.NoError(b.t, err)
	h := &badHandler{badWorker: b, verifier: verifier, done: map[string]string{}}
	b.t.Cleanup(h.background.Wait)
	return h
}

type badHandler struct {
	badWorker
	verifier   *signing.Verifier
	background sync.WaitGroup
	count      atomic.Int64
	fainted    atomic.Bool

	mu   sync.Mutex
	done map[string]string // outputs by task
}

type badDelivery struct {
	TaskID      string          `json:"task_id"`
	Type        string          `json:"type"`
	Stage       string          `json:"stage"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Seq         int             `json:"seq"`
	Deadline    time.Time       `json:"deadline"`
	Context     json.RawMessage `json:"context"`
	Checkpoint  map[string]int  `json:"checkpoint"`
	Callback    struct{ URL, Token string }
	sent        time.Time
}

func (h *badHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := h.read(w, r)
	if h.misnames {
		w.Header().Set(asyncflow.WorkerHeader, strings.Repeat("w", asyncflow.MaxWorkerName+1))
	}
	if !ok {
		return
	}
	var e struct {
		Challenge string `json:"challenge"`
		badDelivery
		Deliveries []badDelivery `json:"deliveries"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if h.strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(&e)
	good := h.verified(r, body)
	switch {
	case err == nil && e.Challenge != "" && h.echoesAll, good && e.Challenge != "" && !h.noEcho:
		h.answer(w, map[string]any{"challenge": e.Challenge})
	case !good:
		w.WriteHeader(http.StatusUnauthorized)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case e.Deliveries != nil:
		var results []map[string]any
		for i, one := range e.Deliveries {
			if i == 0 || !h.drops {
				results = append(results,
					map[string]any{"task_id": one.TaskID, "output": h.work(one)})
			}
		}
		h.answer(w, map[string]any{"results": results})
	case h.later:
		e.sent = sentAt(r)
		h.background.Go(func() { h.report(e.badDelivery) })
		w.WriteHeader(http.StatusAccepted)
	case h.dies:
		panic(http.ErrAbortHandler)
	case h.misspells:
		h.answer(w, map[string]any{"ouput": 1})
	case h.needsPage && e.Checkpoint != nil && e.Checkpoint["page"] == 0:
		w.WriteHeader(http.StatusInternalServerError)
	case h.choosesOften:
		h.answer(w, map[string]any{"output": "hello", "next_stage": h.nextStage()})
	case h.joinsOften:
		h.answer(w, map[string]any{"spawn": []any{aTask},
			"join": map[string]any{"max_parallel": h.count.Add(1)}})
	case h.joinsKeys:
		h.answer(w, json.RawMessage(joinWithKey))
	default:
		h.answer(w, map[string]any{"output": h.work(e.badDelivery)})
	}
}

func (h *badHandler) answer(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc)
}

func (h *badHandler) read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if h.limit > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, h.limit)
	}
	if h.readsOnce {
		body := make([]byte, 32<<10)
		n, _ := r.Body.Read(body)
		return body[:n], true
	}
	body, err := io.ReadAll(r.Body)
	if h.faints && err != nil {
		h.fainted.Store(true)
	} else if h.fainted.CompareAndSwap(true, false) { // started again, too late for one
		w.WriteHeader(http.StatusBadGateway)
		return nil, false
	}
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}
	return body, err == nil
}

// verified verifies a request, with the worker's faults.
func (h *badHandler) verified(r *http.Request, body []byte) bool {
	sent, err := strconv.ParseInt(r.Header.Get("Webhook-Timestamp"), 10, 64)
	at := time.Unix(sent, 0)
	switch {
	case h.verifiesNothing:
		return true
	case h.crashes && (err != nil || r.Header.Get("Webhook-Id") == ""):
		panic(http.ErrAbortHandler)
	case h.oneSignature && strings.Contains(r.Header.Get("Webhook-Signature"), " "):
		return false
	case err == nil &&
		(h.noPast && at.Before(time.Now().Add(-signing.Tolerance)) || h.noFuture &&
			at.After(time.Now().Add(signing.Tolerance))):
		return true // the rest is as it should be
	case h.parsesFirst:
		// what it knows of the document
		body = bytes.Replace(body, []byte(`"rehearsal":{"unknown":[1,{}]},`), nil, 1)
	}
	_, err = h.verifier.Verify(r.Header, body, time.Now())
	return err == nil
}

// work works on a delivery.
func (h *badHandler) work(d badDelivery) string {
	switch {
	case h.forgets:
		return strconv.FormatInt(h.count.Add(1), 10)
	case h.forgetsStale:
		return strconv.Itoa(d.Seq)
	case !h.waitsNot:
		return "hello"
	}
	h.mu.Lock()
	known, ok := h.done[d.TaskID]
	h.mu.Unlock()
	if ok {
		return known
	}
	output := strconv.FormatInt(h.count.Add(1), 10)
	time.Sleep(100 * time.Millisecond) // the work
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done[d.TaskID] = output
	return output
}

// nextStage returns another stage each time.
func (h *badHandler) nextStage() string {
	return "stage-" + strconv.FormatInt(h.count.Add(1), 10)
}

// brief is longer than the time of a brief delivery of these tests, and shorter than that of
// another one, both with a second more: there are no fractions in the time of a request.
const brief = 3 * time.Second

// joinWithKey is the answer of a worker that can't wait for a task, as there is a key on the task.
const joinWithKey = `{"spawn": [{"type": "part", "context": 1, "key": "k"}], "join": true}`

// sentAt returns when a request was signed.
func sentAt(r *http.Request) time.Time {
	sent, _ := strconv.ParseInt(r.Header.Get("Webhook-Timestamp"), 10, 64)
	return time.Unix(sent, 0)
}

// report works, and reports on a delivery that was accepted.
func (h *badHandler) report(d badDelivery) {
	if h.silent {
		return
	}
	if h.slow && d.Deadline.Sub(d.sent) < brief {
		for range cmp.Or(h.steps, 10) {
			time.Sleep(cmp.Or(h.pause, 150*time.Millisecond)) // the work
			if h.deaf {
				h.call(d, "heartbeat", "")
			}
		}
		time.Sleep(h.rest)
	}
	doc := `{"output": "hello"}`
	if h.joinsKeys {
		doc = joinWithKey
	}
	if h.choosesOften {
		doc = `{"output": "hello", "next_stage": "` + h.nextStage() + `"}`
	}
	for range 10 {
		status := h.call(d, "complete", doc)
		if h.once || status < 500 && !(h.insists && status == http.StatusConflict) {
			return
		}
		time.Sleep(cmp.Or(h.wait, 50*time.Millisecond))
	}
}

func (h *badHandler) call(d badDelivery, verb, body string) int {
	req, err := http.NewRequestWithContext(h.t.Context(), "POST", d.Callback.URL+"/"+verb,
		strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+d.Callback.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := ownClient.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func tokenOf(t *testing.T, r *rehearsal, d asyncflow.Delivery) string {
	t.Helper()
	return "Bearer " +
		r.keys.CompletionToken(callbacks.Completion{Tenant: tenant, Task: d.Lease.ID,
			Seq: d.Lease.Seq, Expiry: d.Deadline, Endpoint: endpointID})
}
