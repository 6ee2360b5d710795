package callbacks

import (
	"net/http"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// notificationTo returns the delivery of an event to a URL.
func notificationTo(endpoint, url string) asyncflow.Delivery {
	d := deliveryTo(endpoint)
	d.Lease.Context = []byte(`{"id":"final-a.1.2.3","data":{"result": 1e400}}`)
	d.Lease.Options.Notification = &asyncflow.Notification{Event: "final-a.1.2.3", Task: "a.1.2",
		URL: url}
	return d
}

// A notification is the event and nothing else, signed, with the id of the event.
func TestNotify(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(202, `{"outcome":"fail"}`))
	r := setup(t)
	d := notificationTo(w.url+"/first", w.url+"/ended?task=7")
	o := r.Send(t.Context(), d)
	require.Equal(t, asyncflow.OutcomeDone, o.Kind, "202 says that it was received: %s", o.Error)
	require.Equal(t, []any{w.url + "/ended?task=7", 202}, []any{o.Endpoint, o.Status})
	got := w.all()[0]
	require.Equal(t, string(d.Lease.Context), string(got.body))
	require.Equal(t, []string{"/ended?task=7", "final-a.1.2.3"},
		[]string{got.RequestURI, got.Header.Get("Webhook-Id")})
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	require.NoError(t, err)
	require.NoError(t, verifier.VerifyIgnoringTimestamp(got.body, got.Header))
	d.Lease.Seq++
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	require.Equal(t, "final-a.1.2.3", w.all()[1].Header.Get("Webhook-Id"),
		"each delivery has the same id")
}

// What a receiver answers with another status is a failure, to be tried again.
func TestNotifyFails(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(503)
	})
	r := setup(t)
	o := r.Send(t.Context(), notificationTo(w.url, w.url))
	require.Equal(t, []any{asyncflow.OutcomeFailed, 503, "7s"},
		[]any{o.Kind, o.Status, o.RetryAfter.String()})
	require.True(t, o.EndpointFailed())
}

// An endpoint that was moved to another origin gets all events of its target. The policy counts for
// the URL of each event.
func TestNotifyWhere(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(204, ""))
	r := setup(t)
	o := r.Send(t.Context(), notificationTo(w.url+"/moved", "https://gone.example/ended"))
	require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	require.Equal(t, "/moved", w.all()[0].RequestURI)
	strict := setup(t, func(c *Config) { c.Egress = asyncflow.Egress{AllowHTTP: true} })
	o = strict.Send(t.Context(), notificationTo(w.url+"/a", w.url+"/b"))
	require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
	require.Len(t, w.all(), 1, "it was not sent")
}
