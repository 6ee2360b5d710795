package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// exchange is a request, its deliveries, and its one answer.
type exchange struct {
	id       string
	requests *requests
	batch    bool
	runs     []*run

	decided  sync.Once
	answered chan struct{} // closed when status and body are set
	status   int
	body     []byte // nil: none

	sent   chan struct{} // closed when the answer was sent, or the connection broke
	broken bool          // the connection broke
}

// start starts work on the deliveries. Results that come within the handler's AnswerWithin are in
// the answer; the other deliveries are accepted.
func (x *exchange) start(
	ctx context.Context, w *Worker, h *handler, deliveries []delivery, offset time.Duration,
) {
	var inTime, late []*run
	for _, d := range deliveries {
		r := newRun(ctx, w, h, x, d, d.Deadline.Add(offset))
		x.runs = append(x.runs, r)
		if time.Now().Before(r.until) {
			inTime = append(inTime, r)
		} else {
			late = append(late, r)
		}
	}
	if h.answerWithin < 0 {
		x.decide(false)
	}
	for _, r := range late {
		r.cancel(ErrLost)
		go r.finish(outcome{kind: kindRetry, error: "its deadline had passed when it came"})
	}
	if len(inTime) > 0 {
		h.start(inTime)
	}
	go x.wait(h.answerWithin)
}

// wait decides on the answer when all deliveries are done, or when time is up.
func (x *exchange) wait(most time.Duration) {
	timeUp := time.NewTimer(most)
	defer timeUp.Stop()
	for _, r := range x.runs {
		select {
		case <-r.finished:
		case <-timeUp.C:
			x.decide(false)
			return
		case <-x.answered:
			return
		}
	}
	x.decide(false)
}

// answer is the body of a 200, or one of the results of a batch.
type answer struct {
	TaskID     string             `json:"task_id,omitempty"` // in a batch
	Output     json.RawMessage    `json:"output,omitempty"`
	Outcome    string             `json:"outcome,omitempty"` // left out: done
	Error      string             `json:"error,omitempty"`
	RetryAfter asyncflow.Duration `json:"retry_after,omitzero"`
	NextStage  string             `json:"next_stage,omitempty"`
	Finish     bool               `json:"finish,omitempty"`

	Spawn []client.SpawnedTask `json:"spawn,omitempty"`
	Join  asyncflow.JoinOption `json:"join,omitzero"`
}

// decide makes the answer, once. It holds the results that are there; the other deliveries are
// accepted. If nobody can be answered any more, all of them are.
func (x *exchange) decide(nobody bool) {
	x.decided.Do(func() {
		answers := make([]answer, len(x.runs))
		accepted := 0
		for i, r := range x.runs {
			answers[i] = r.answer(nobody)
			if r.accepted {
				accepted++
			}
		}
		x.status = http.StatusOK
		switch {
		case accepted == len(x.runs):
			x.status = http.StatusAccepted
		case x.batch:
			// Strings and checked JSON always encode.
			x.body, _ = api.Encode(map[string]any{"results": answers})
		default:
			answers[0].TaskID = ""
			x.body, _ = api.Encode(answers[0])
		}
		x.requests.answered(x)
		close(x.answered)
	})
}

// serve answers the request that began the exchange, and records whether that went well. If not,
// the deliveries are reported.
func (x *exchange) serve(rw http.ResponseWriter, r *http.Request) {
	defer close(x.sent)
	select {
	case <-x.answered:
		err := x.write(rw)
		x.broken = err != nil || r.Context().Err() != nil
	case <-r.Context().Done():
		x.decide(true)
		x.broken = true
	}
}

// repeat answers another request with the same id.
func (x *exchange) repeat(rw http.ResponseWriter, r *http.Request) {
	select {
	case <-x.answered:
		_ = x.write(rw) // the sender may ask once more
	case <-r.Context().Done():
	}
}

func (x *exchange) write(rw http.ResponseWriter) error {
	if x.body == nil {
		rw.WriteHeader(x.status)
		return nil
	}
	return writeBody(rw, x.status, x.body)
}

func write(rw http.ResponseWriter, status int, doc any) {
	body, err := api.Encode(doc)
	if err != nil {
		status = http.StatusInternalServerError
	}
	_ = writeBody(rw, status, body) // nothing depends on it
}

// writeBody writes an answer. Even without an error, the answer may not arrive.
func writeBody(rw http.ResponseWriter, status int, body []byte) error {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(status)
	_, err := rw.Write(body)
	return err
}

const (
	// remembered is how many answers are kept for repeated requests.
	remembered = 10_000
	// rememberedBody bounds the body of each, in bytes.
	rememberedBody = 4 << 10
)

// requests holds the requests in flight and the last answered ones, by id.
type requests struct {
	mu   sync.Mutex
	open map[string]*exchange
	past *lru.Cache[string, *exchange]
}

func newRequests() *requests {
	past, err := lru.New[string, *exchange](remembered)
	if err != nil { // only for a size of 0
		panic(err)
	}
	return &requests{open: map[string]*exchange{}, past: past}
}

// begin returns the exchange of the request with this id, or a new one if admit returns true;
// otherwise it returns nil.
func (q *requests) begin(id string, admit func() bool) (x *exchange, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if x, known := q.open[id]; known {
		return x, false
	}
	if x, known := q.past.Get(id); known {
		return x, false
	}
	if !admit() {
		return nil, false
	}
	x = &exchange{id: id, requests: q, answered: make(chan struct{}), sent: make(chan struct{})}
	q.open[id] = x
	return x, true
}

// answered keeps the answer, without the deliveries that it was made from.
func (q *requests) answered(x *exchange) {
	kept := &exchange{id: x.id, answered: make(chan struct{}), status: x.status, body: x.body}
	if len(x.body) > rememberedBody {
		kept.status = http.StatusConflict
		kept.body, _ = api.Encode(
			answer{Error: "this delivery was answered before; the answer is not kept"})
	}
	close(kept.answered)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, x.id)
	q.past.Add(x.id, kept)
}
