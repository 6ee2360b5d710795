package callbacks

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A worker sees this request.
func TestSendRequest(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	r := setup(t)
	d := deliveryTo(w.url + "/resize?size=1")
	o := r.Send(t.Context(), d)
	require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	require.Equal(t, d.Endpoint.URL, o.Endpoint)

	require.Len(t, w.all(), 1)
	got := w.all()[0]
	token := r.keys.CompletionToken(Completion{Tenant: "acme", Task: d.Lease.ID, Seq: 3,
		Expiry: d.Deadline.Add(lateReports), Endpoint: d.Endpoint.ID})
	require.Equal(t, string(envelope(d, "https://tasks.example.com", token)), string(got.body))
	require.Equal(t, http.MethodPost, got.Method)
	require.Equal(t, "/resize?size=1", got.RequestURI)
	require.Equal(t, int64(len(got.body)), got.ContentLength)
	signature := got.Header.Get("Webhook-Signature")
	require.Regexp(t, `^v1,[A-Za-z0-9+/]{43}=$`, signature)
	require.Equal(t, http.Header{
		"Content-Type":      {"application/json"},
		"Content-Length":    {strconv.Itoa(len(got.body))},
		"User-Agent":        {"asyncflow/1.2.3"},
		"Webhook-Id":        {"thumbnails.1.42.3"},
		"Webhook-Timestamp": {strconv.FormatInt(d.At.Unix(), 10)},
		"Webhook-Signature": {signature},
	}, got.Header, "these headers and no others")
}

// The token of a delivery stays valid a little longer than its deadline.
func TestSendTokenOutlivesTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(202, ""))
	r := setup(t)
	d := deliveryTo(w.url)
	require.Equal(t, asyncflow.OutcomeAccepted, r.Send(t.Context(), d).Kind)
	var got struct{ Callback struct{ URL, Token string } }
	require.NoError(t, json.Unmarshal(w.all()[0].body, &got))
	require.Equal(t, "https://tasks.example.com/v1/callbacks/thumbnails.1.42", got.Callback.URL)
	c, err := r.keys.VerifyCompletion(got.Callback.Token, d.Lease.ID)
	require.NoError(t, err)
	require.NoError(t, c.Expired(d.Deadline))
	require.Equal(t,
		Completion{Tenant: "acme", Task: d.Lease.ID, Seq: 3,
			Expiry: time.Unix(d.Deadline.Add(lateReports).Unix(), 0), Endpoint: d.Endpoint.ID}, c)
	require.Error(t, c.Expired(d.Deadline.Add(lateReports)))
}

func TestSendRefusedConnection(t *testing.T) {
	t.Parallel()
	o := setup(t).Send(t.Context(), deliveryTo("http://"+closedAddress(t)))
	require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
	require.Zero(t, o.Status)
	require.Contains(t, o.Error, "connection refused")
}

// closedAddress returns an address where nothing listens.
func closedAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// A delivery that can't be built fails without a request, and without revealing its secret.
func TestSendWithoutRequest(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	badSecret := deliveryTo(w.url)
	badSecret.Endpoint.Secrets[0] = sealed("whsec_!secret!")
	badURL := deliveryTo("http://127.0.0.1:http/")
	for _, d := range []asyncflow.Delivery{badSecret, badURL} {
		o := setup(t).Send(t.Context(), d)
		require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
		require.NotEmpty(t, o.Error)
		require.NotContains(t, o.Error, "!secret!")
	}
	require.Empty(t, w.all())
}

func TestSendCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	w := newWorker(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		close(left)
	})
	o := setup(t).Send(ctx, deliveryTo(w.url))
	requireOutcome(t,
		asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
			Error: "the node stopped before the answer came"}, o)
	require.Less(t, o.Duration, ample/2)
	<-left // the worker is told
	require.Len(t, w.all(), 1)
}

func TestSendCancelledInTheBody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Write([]byte("{"))
		rw.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	})
	o := setup(t).Send(ctx, deliveryTo(w.url))
	requireOutcome(t,
		asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
			Error: "the node stopped before the answer came"}, o)
}

func TestSendAfterCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newWorker(t, reply(200, ""))
	require.Equal(t, asyncflow.OutcomeFailed, setup(t).Send(ctx, deliveryTo(w.url)).Kind)
	require.Empty(t, w.all())
}

// Failures close no connection of others, neither of the same host nor of another one.
func TestSendReusesConnections(t *testing.T) {
	t.Parallel()
	answers := []http.HandlerFunc{
		reply(200, ""), reply(200, `{"output":1}`), reply(204, ""), reply(202, "queued"),
		reply(404, "no"),
		reply(500, "boom"), reply(503, "busy", "Retry-After: 1"),
		reply(301, "moved", "Location: /x"),
		reply(200, "{"),
	}
	var sent int
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		answers[sent%len(answers)](rw, r)
		sent++
	})
	broken := newRawWorker(t, reset)
	refused := "http://" + closedAddress(t)
	r := setup(t)
	for range 50 {
		o := r.Send(t.Context(), deliveryTo(w.url))
		require.NotZero(t, o.Status, o.Error)
		require.Zero(t, r.Send(t.Context(), deliveryTo(refused)).Status)
		require.Zero(t, r.Send(t.Context(), deliveryTo(broken.url)).Status)
	}
	require.Len(t, w.all(), 50)
	require.Len(t, broken.all(), 50, "one request for each, though the connection broke")
	require.LessOrEqual(t, w.connections.Load(), int64(3),
		"a busy machine may give a connection back too late once in a while")
}

// A request on a kept connection that the worker closed meanwhile may fail, but is never sent
// twice.
func TestSendNeverRepeats(t *testing.T) {
	t.Parallel()
	var answered sync.Map
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, again := answered.LoadOrStore(r.RemoteAddr, true); again {
			panic(http.ErrAbortHandler) // the second request on a connection gets no answer
		}
		reply(200, "")(rw, r)
	})
	r := setup(t)
	for i := range 20 {
		o := r.Send(t.Context(), deliveryTo(w.url))
		require.Equal(t, i%2 == 0, o.Kind == asyncflow.OutcomeDone, o.Error)
		require.Len(t, w.all(), i+1)
	}
	require.Equal(t, int64(10), w.connections.Load())
}

func TestSendConcurrently(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, `{"output":1}`))
	r := setup(t)
	var senders sync.WaitGroup
	outcomes := make(chan asyncflow.Outcome, 200)
	for i := range cap(outcomes) {
		senders.Go(func() {
			d := deliveryTo(w.url)
			d.Lease.Seq = i
			outcomes <- r.Send(t.Context(), d)
		})
	}
	senders.Wait()
	close(outcomes)
	for o := range outcomes {
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	}
	ids := map[string]bool{}
	for _, got := range w.all() {
		ids[got.Header.Get("Webhook-Id")] = true
	}
	require.Len(t, ids, 200)
}

func TestSenderDefaults(t *testing.T) {
	t.Parallel()
	s := NewSender(Config{}, testKeys(t, nodeSecret))
	require.Equal(t, asyncflow.DefaultMaxContext, s.cfg.MaxOutput)
	require.Equal(t, 256, s.cfg.Connections)
	require.Equal(t, asyncflow.Egress{}, s.cfg.Egress)
}
