package callbacks

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A rehearsal without a change sends the same request as Send, and reads its answer in the same
// way.
func TestRehearse(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, `{"output": 1}`))
	r := setup(t)
	d := deliveryTo(w.url)
	sent := r.Send(t.Context(), d)
	all := []asyncflow.Delivery{d}
	rehearsed := r.Rehearse(t.Context(), all, func(*http.Request, []byte) error { return nil })[0]
	require.Equal(t, asyncflow.OutcomeDone, rehearsed.Kind, rehearsed.Error)
	require.NotZero(t, rehearsed.Duration)
	sent.Duration, rehearsed.Duration = 0, 0
	require.Equal(t, sent, rehearsed)
	require.Equal(t, w.all()[0].Header, w.all()[1].Header)
	require.Equal(t, string(w.all()[0].body), string(w.all()[1].body))

	r.Rehearse(t.Context(), all, func(req *http.Request, body []byte) error {
		req.Header.Set("X-Altered", string(body[:10]))
		return nil
	})
	require.Equal(t, `{"task_id"`, w.all()[2].Header.Get("X-Altered"))

	o := r.Rehearse(t.Context(), all, func(*http.Request, []byte) error {
		return errors.New("not this one")
	})[0]
	require.Equal(t, "not this one", o.Error)
	strict := setup(t, func(c *Config) { c.Egress = asyncflow.Egress{} })
	o = strict.Rehearse(t.Context(), all, func(*http.Request, []byte) error { return nil })[0]
	require.Contains(t, o.Error, "the endpoint's URL must be https")
	require.Len(t, w.all(), 3)
}
