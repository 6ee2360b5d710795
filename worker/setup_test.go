package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/openapi"
	"github.com/asyncflow/asyncflow/internal/signing"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	token  = "completion-token"
	soon   = 2 * time.Minute // a test that waits longer fails
)

// ownClient stands in for http.DefaultClient. A server of httptest that ends closes the idle
// connections of the default transport, which may break a request of a parallel test.
var ownClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

// bundle is a worker on a server of its own, and the asyncflow that sends to it.
type bundle struct {
	t         *testing.T
	worker    *Worker
	url       string
	asyncflow *receiver
	seq       int
}

func setup(t *testing.T, with ...func(*Config)) *bundle {
	t.Helper()
	t.Parallel()
	cfg := Config{Keys: []string{secret}, Log: slog.New(slog.DiscardHandler), Heartbeat: time.Hour,
		AnswerWithin: soon}
	for _, change := range with {
		change(&cfg)
	}
	w, err := New(cfg)
	require.NoError(t, err)
	w.reporter = newReporter(cfg.Transport, time.Millisecond).Named(w.cfg.Name)
	server := httptest.NewServer(w)
	b := &bundle{t: t, worker: w, url: server.URL, asyncflow: newReceiver(t)}
	t.Cleanup(func() {
		server.Close()
		b.close()
	})
	return b
}

// close waits for the worker's background work.
func (b *bundle) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	require.NoError(b.t, b.worker.Close(ctx))
}

// envelope returns the body of the next delivery of the stage "inspect", with a context.
func (b *bundle) envelope(context string) map[string]any {
	b.seq++
	return map[string]any{
		"task_id": "images.1.42", "type": "images", "stage": "inspect",
		"attempt": 2, "max_attempts": 20, "seq": b.seq, "shard": 3,
		"later":    map[string]any{"id": "x"},
		"deadline": time.Now().Add(time.Minute).Format(time.RFC3339Nano),
		"context":  json.RawMessage(context),
		"callback": map[string]any{"url": b.asyncflow.url + "/v1/callbacks/images.1.42",
			"token": token},
	}
}

// deliver posts a signed delivery with a context.
func (b *bundle) deliver(context string) reply {
	b.t.Helper()
	return b.post(signed(b.t, b.envelope(context)))
}

func (b *bundle) post(m message) reply {
	b.t.Helper()
	r, err := b.try(context.Background(), m)
	require.NoError(b.t, err)
	return r
}

// try is post with a context. The connection breaks when the context ends.
func (b *bundle) try(ctx context.Context, m message) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, m.method, b.url+"/any/path",
		bytes.NewReader(m.body))
	if err != nil {
		return reply{}, err
	}
	req.Header = m.header.Clone()
	resp, err := ownClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusOK && len(body) > 0 && err == nil {
		assert.NoError(b.t, openapi.CheckJSON(answerTo(m.body), body), "%s", body)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// answerTo returns the schema in openapi.yaml of the answer to a request.
func answerTo(request []byte) string {
	var r struct {
		Type       string
		Deliveries []any
	}
	_ = json.Unmarshal(request, &r)
	switch {
	case r.Type == "asyncflow.challenge":
		return "ChallengeAnswer"
	case len(r.Deliveries) > 0:
		return "DeliveryResults"
	}
	return "DeliveryAnswer"
}

type reply struct {
	status int
	header http.Header
	body   string
}

// message is a request that can be posted.
type message struct {
	method string
	header http.Header
	body   []byte
}

var ids atomic.Int64

// signed signs an envelope with the secret, with the present time and a new id.
func signed(t *testing.T, envelope any) message {
	t.Helper()
	return signedAt(t, time.Now(), envelope, secret)
}

func signedAt(t *testing.T, at time.Time, envelope any, by string) message {
	t.Helper()
	body, err := json.Marshal(envelope)
	require.NoError(t, err)
	m := message{method: http.MethodPost, header: http.Header{"Content-Type": {"application/json"}},
		body: body}
	signer, err := signing.NewSigner(by)
	require.NoError(t, err)
	require.NoError(t,
		signing.Sign(m.header, fmt.Sprintf("images.1.42.%d", ids.Add(1)), at, body,
			[]signing.Signer{signer}))
	return m
}

// receiver stands for an asyncflow that is away, slow, or refuses. It records the reports, and
// answers them as a test wants.
type receiver struct {
	url     string
	reports chan report
	answer  atomic.Pointer[http.HandlerFunc]
}

type report struct{ verb, body, worker string }

func newReceiver(t *testing.T) *receiver {
	r := &receiver{reports: make(chan report, 100)}
	r.answers(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, `{"status":"running"}`)
	})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/callbacks/images.1.42/{verb}",
		func(rw http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			if req.Header.Get("Authorization") != "Bearer "+token {
				t.Errorf("a report without the token: %v", req.Header)
			}
			r.reports <- report{req.PathValue("verb"), string(body),
				req.Header.Get(asyncflow.WorkerHeader)}
			(*r.answer.Load())(rw, req)
		})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) answers(h http.HandlerFunc) { r.answer.Store(&h) }

// beats answers heartbeats with a status and a deadline that far ahead, and all other reports with
// an HTTP status.
func (r *receiver) beats(status string, ahead time.Duration, others int) {
	r.answers(func(rw http.ResponseWriter, req *http.Request) {
		if req.PathValue("verb") != "heartbeat" {
			rw.WriteHeader(others)
			return
		}
		_ = json.NewEncoder(rw).Encode(api.HeartbeatResult{Status: api.Status(status),
			Deadline: time.Now().Add(ahead)})
	})
}

// next waits for a report of a kind, and ignores others.
func (r *receiver) next(t *testing.T, verb string) string {
	t.Helper()
	for {
		select {
		case got := <-r.reports:
			if got.verb == verb {
				return got.body
			}
		case <-time.After(soon):
			require.FailNow(t, "no report arrived", verb)
		}
	}
}

type photo struct {
	Image string `json:"image"`
}

type picture struct {
	Width int `json:"width"`
}

// inspects registers a function as the worker's handler.
func (b *bundle) inspects(
	work func(context.Context, Task[photo]) (picture, error), opts ...Option,
) {
	Handle(b.worker, "images", "inspect", work, opts...)
}
