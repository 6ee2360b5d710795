package callbacks

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// testTo returns a test delivery to a URL, of an endpoint with settings.
func testTo(t *testing.T, url string, o asyncflow.Outbound) asyncflow.Delivery {
	t.Helper()
	d := deliveryWith(t, url, o)
	d.Lease.ID, d.Lease.Seq, d.Lease.Attempt = TestID("thumbnails"), 1, 1
	return d
}

// A test delivery is sent like a real one (newWorker verifies its signature), and can be told from
// one. What it shows is what the worker got, with a mask for each secret.
func TestTestDelivery(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header()["X-Twice"] = []string{"a", "b"}
		reply(200, `{"output":{"got":"`+r.Header.Get("X-Api-Key")+r.Header.Get("Authorization")+`"}}`,
			"Content-Type: application/json", "Set-Cookie: id=swordfish-3",
			"X-Echo: "+r.Header.Get("X-Api-Key"))(rw, r)
	}, func(s *httptest.Server) { s.TLS = ours.server() })
	r := setup(t)
	d := testTo(t, w.url+"/resize?size=1", asyncflow.Outbound{
		Headers: map[string]string{"X-Api-Key": "swordfish-1", "Asyncflow-Test": "no"},
		Auth:    asyncflow.EndpointAuth{Kind: "bearer", Token: "swordfish-2"},
		TLS:     asyncflow.EndpointTLS{CA: ours.pem}})
	got := r.Test(t.Context(), d)
	require.Equal(t, asyncflow.OutcomeDone, got.Outcome.Kind, got.Outcome.Error)
	require.Nil(t, got.Outcome.Output)
	require.Positive(t, got.Outcome.Duration)

	sent := w.all()[0]
	require.Equal(t, []string{d.Endpoint.URL, string(sent.body)}, []string{got.URL, got.Body})
	require.Equal(t, []string{"true", "swordfish-1", "Bearer swordfish-2", d.Lease.ID.String() +
		".1"},
		[]string{sent.Header.Get("Asyncflow-Test"), sent.Header.Get("X-Api-Key"),
			sent.Header.Get("Authorization"), sent.Header.Get("Webhook-Id")})
	var body struct {
		TaskID   string `json:"task_id"`
		Test     bool
		Context  json.RawMessage
		Callback struct{ URL, Token string }
	}
	require.NoError(t, json.Unmarshal(sent.body, &body))
	require.True(t, body.Test)
	require.Equal(t, string(d.Lease.Context), string(body.Context))
	require.Equal(t, "https://tasks.example.com/v1/callbacks/"+body.TaskID, body.Callback.URL)
	_, err := asyncflow.ParseTaskID(body.TaskID)
	require.Error(t, err, "no task has this id")
	_, err = r.keys.VerifyCompletion(body.Callback.Token, d.Lease.ID)
	require.Error(t, err, "nothing can be reported")

	for name, value := range got.Headers {
		switch name {
		case "X-Api-Key", "Authorization":
			require.Equal(t, asyncflow.Mask, value, name)
		default:
			require.Equal(t, sent.Header.Get(name), value, name)
		}
	}
	want := slices.Sorted(maps.Keys(sent.Header))
	want = slices.DeleteFunc(want, func(name string) bool { return name == "Content-Length" })
	require.Equal(t, want, slices.Sorted(maps.Keys(got.Headers)))
	require.Equal(t, 200, got.Answer.Status)
	require.False(t, got.Answer.Truncated)
	require.Equal(t, `{"output":{"got":"********Bearer ********"}}`, got.Answer.Body)
	require.Equal(t, []string{"a, b", asyncflow.Mask, asyncflow.Mask},
		[]string{got.Answer.Headers["X-Twice"], got.Answer.Headers["Set-Cookie"],
			got.Answer.Headers["X-Echo"]})
}

// An endpoint with batches gets a test delivery in the form that it expects.
func TestTestDeliveryOfABatch(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		reply(200, `{"results":[]}`, "Content-Type: application/json")(rw, r)
	})
	d := testTo(t, w.url, asyncflow.Outbound{})
	d.Endpoint.Batch = asyncflow.Batch{MaxTasks: 5}
	got := setup(t).Test(t.Context(), d)
	require.Equal(t, "the answer has no result for this task", got.Outcome.Error)
	require.True(t, strings.HasPrefix(got.Body, `{"deliveries":[{"task_id":"thumbnails.0.`),
		got.Body)
	require.Contains(t, got.Body, `"test":true`)
}

// Of an answer only so much is shown, whatever the worker sends.
func TestTestDeliveryAnswerIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(rw http.ResponseWriter, _ *http.Request) {
		for i := range 50 {
			rw.Header().Set("X-"+strings.Repeat("a", i+1), strings.Repeat("b", 1000))
		}
		rw.WriteHeader(500)
		for range 1 << 20 {
			if _, err := io.WriteString(rw, strings.Repeat("\xff", 1024)); err != nil {
				return
			}
		}
	})
	got := setup(t).Test(t.Context(), testTo(t, w.url, asyncflow.Outbound{}))
	require.Equal(t, 500, got.Answer.Status)
	require.True(t, got.Answer.Truncated)
	require.LessOrEqual(t, len(got.Answer.Body), maxTestBody+len("…"))
	require.True(t, strings.HasPrefix(got.Answer.Body, "\uFFFD"), "it is text")
	bytes := 0
	for name, value := range got.Answer.Headers {
		bytes += len(name) + len(value)
	}
	require.LessOrEqual(t, bytes, maxTestHeaders)
	require.Greater(t, bytes, maxTestHeaders/2)
	require.Equal(t, asyncflow.OutcomeFailed, got.Outcome.Kind)
}

// A worker that says nothing, or a byte at a time, ends with the time limit. What it said is shown.
func TestTestDeliveryIsBoundedInTime(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		raw    func(net.Conn)
		status int
	}{
		"silent":           {waitForClose, 0},
		"a byte at a time": {dribble("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", "x"), 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRawWorker(t, answer.raw)
			d := testTo(t, w.url, asyncflow.Outbound{})
			d.Timeout = short
			start := time.Now()
			got := setup(t).Test(t.Context(), d)
			require.Less(t, time.Since(start), ample/2)
			require.Equal(t, "no answer within 150ms", got.Outcome.Error)
			require.Equal(t, answer.status, got.Answer.Status)
			require.Equal(t, answer.status == 200, got.Answer.Truncated)
			require.Equal(t, d.Endpoint.URL, got.URL)
		})
	}
}

// A test delivery goes where deliveries may go, and nowhere else. A redirect is shown, not
// followed.
func TestTestDeliveryIsGuarded(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(307, "elsewhere", "Location: http://169.254.169.254/"))
	got := setup(t).Test(t.Context(), testTo(t, w.url, asyncflow.Outbound{}))
	require.Equal(t, "307 Temporary Redirect: redirects are not followed", got.Outcome.Error)
	require.Equal(t, "http://169.254.169.254/", got.Answer.Headers["Location"])
	require.Len(t, w.all(), 1)

	names := newNameServer(t)
	names.set("worker.example.com", "127.0.0.1")
	guarded := setup(t, func(c *Config) {
		c.Egress, c.Resolver = asyncflow.Egress{AllowHTTP: true}, names.resolver()
	})
	url := strings.Replace(w.url, "127.0.0.1", "worker.example.com", 1)
	got = guarded.Test(t.Context(), testTo(t, url, asyncflow.Outbound{}))
	require.Contains(t, got.Outcome.Error, refusedNetwork)
	require.Zero(t, got.Answer.Status)
	got = guarded.Test(t.Context(), testTo(t, w.url, asyncflow.Outbound{}))
	require.Contains(t, got.Outcome.Error, "the endpoint's URL must name its host")
	require.Empty(t, got.URL, "no request was made")
	require.Len(t, w.all(), 1)
}

// Without a login there is no request.
func TestTestDeliveryWithoutALogin(t *testing.T) {
	t.Parallel()
	d := testTo(t, "https://worker.example.com", asyncflow.Outbound{Auth: asyncflow.EndpointAuth{
		Kind: "oauth2", TokenURL: "https://" + closedAddress(t), ClientID: "a", ClientSecret: "b"}})
	got := setup(t).Test(t.Context(), d)
	require.Contains(t, got.Outcome.Error, "the endpoint's token_url gave no token")
	require.Empty(t, got.URL)
}
