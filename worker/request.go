package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// delivery is what asyncflow sends. Unknown fields are ignored: later versions may add some.
type delivery struct {
	TaskID      string          `json:"task_id"`
	Type        string          `json:"type"`
	TypeVersion int             `json:"type_version"`
	Stage       string          `json:"stage"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Seq         int             `json:"seq"`
	Deadline    time.Time       `json:"deadline"`
	Context     json.RawMessage `json:"context"`
	Checkpoint  json.RawMessage `json:"checkpoint"`
	Callback    Callback        `json:"callback"`
	FanOut      *FanOut         `json:"fan_out"`
	Test        bool            `json:"test"`

	Input   json.RawMessage            `json:"input"`
	Outputs map[string]json.RawMessage `json:"outputs"`
	ByURL   []string                   `json:"by_url"`

	Links map[string]map[string]string `json:"links"`

	User     string            `json:"user"`
	Tags     []string          `json:"tags"`
	Metadata map[string]string `json:"metadata"`
	Trace    string            `json:"trace"`

	Traceparent string `json:"traceparent"`
}

// envelope is the body of a request: one delivery, several of one stage, or a challenge.
type envelope struct {
	delivery
	Deliveries []delivery `json:"deliveries"`
	Challenge  string     `json:"challenge"`
}

// challengeType is the type of a challenge. No task type goes by that name.
const challengeType = "asyncflow.challenge"

// all returns the deliveries of a request. They must be complete, and of one stage.
func (e envelope) all() ([]delivery, error) {
	all := e.Deliveries
	if all == nil {
		all = []delivery{e.delivery}
	}
	if len(all) == 0 {
		return nil, errors.New("the batch has no deliveries")
	}
	for _, d := range all {
		switch {
		case d.TaskID == "" || d.Callback.URL == "" || d.Deadline.IsZero():
			return nil, errors.New("the body is no delivery: it needs task_id, callback and " +
				"deadline")
		case d.Type != all[0].Type || d.Stage != all[0].Stage:
			return nil, errors.New("the batch has deliveries of several stages")
		}
	}
	return all, nil
}

// refused is the reason why a request is not worked on.
type refused struct {
	status int
	why    string
}

func (r *refused) Error() string { return r.why }

// ServeHTTP answers a delivery, a batch, or a challenge. A request that isn't signed by one of the
// keys, less than five minutes ago, gets 401, and its body isn't parsed.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	signed, body, err := w.verified(rw, r)
	if err != nil {
		w.refuse(rw, r, err)
		return
	}
	if w.cfg.Name != "" { // strangers don't learn it
		rw.Header().Set(asyncflow.WorkerHeader, w.cfg.Name)
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		w.refuse(rw, r, &refused{http.StatusBadRequest, "the body is no delivery: " + err.Error()})
		return
	}
	if e.Type == challengeType {
		write(rw, http.StatusOK, map[string]string{"challenge": e.Challenge})
		return
	}
	if e.isFinal() {
		w.serveFinal(rw, r, signed, body)
		return
	}
	x, first, err := w.take(r, signed, e)
	switch {
	case err != nil:
		w.refuse(rw, r, err)
	case first:
		x.serve(rw, r)
	default:
		w.cfg.Log.Info("the same request again", "webhook_id", signed.ID)
		x.repeat(rw, r)
	}
}

// verified returns the signed id and time of a request, and its body.
func (w *Worker) verified(
	rw http.ResponseWriter, r *http.Request,
) (signing.Request, []byte, error) {
	var none signing.Request
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		return none, nil, &refused{http.StatusMethodNotAllowed, "deliveries are POSTed"}
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return none, nil, &refused{http.StatusUnsupportedMediaType,
			"the body must be application/json"}
	}
	if r.ContentLength > int64(w.cfg.MaxBody) {
		return none, nil, w.tooLarge()
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, int64(w.cfg.MaxBody)))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return none, nil, w.tooLarge()
	case err != nil:
		return none, nil, &refused{http.StatusBadRequest, "the body broke off"}
	}
	signed, err := w.verifier.Verify(r.Header, body, time.Now())
	if err != nil {
		return none, nil, &refused{http.StatusUnauthorized, err.Error()}
	}
	return signed, body, nil
}

func (w *Worker) tooLarge() error {
	return &refused{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("the body is too large: the limit is %d bytes", w.cfg.MaxBody)}
}

// take starts work on the deliveries of a request, or returns the exchange of an earlier request
// with the same id.
func (w *Worker) take(
	r *http.Request, signed signing.Request, e envelope,
) (x *exchange, first bool, err error) {
	deliveries, err := e.all()
	if err != nil {
		return nil, false, &refused{http.StatusBadRequest, err.Error()}
	}
	name := stageName{deliveries[0].Type, deliveries[0].Stage}
	h := w.handlerOf(name)
	if h == nil {
		return nil, false, &refused{http.StatusNotFound,
			fmt.Sprintf("this worker has no handler for the stage %q of %q", name.stage,
				name.taskType)}
	}
	x, first = w.requests.begin(signed.ID, func() bool { return w.admit(len(deliveries)) })
	if x == nil {
		return nil, false, &refused{http.StatusServiceUnavailable,
			"this worker has no capacity left"}
	}
	if first {
		x.batch = e.Deliveries != nil
		x.start(r.Context(), w, h, deliveries, clockOffset(signed.At, time.Now()))
	}
	return x, first, nil
}

// clockOffset returns how far this machine's clock is ahead of the database's clock, which
// deadlines use. It ignores up to 2 s: the time of a request is in whole seconds, and the request
// takes a moment to arrive.
func clockOffset(sent, now time.Time) time.Duration {
	const usual = 2 * time.Second
	if d := now.Sub(sent); d < 0 || d > usual {
		return d
	}
	return 0
}

// refuse answers a request that is not worked on.
func (w *Worker) refuse(rw http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var known *refused
	if errors.As(err, &known) {
		status = known.status
	}
	w.cfg.Log.Warn("delivery refused", "status", status, "error", err,
		"webhook_id", r.Header.Get("Webhook-Id"), "remote", r.RemoteAddr)
	if status == http.StatusServiceUnavailable {
		rw.Header().Set("Retry-After", "1")
	}
	write(rw, status, map[string]string{"error": err.Error()})
}
