package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownClient stands in for http.DefaultClient. A server of httptest that ends closes the idle
// connections of the default transport, which may break a request of a parallel test.
var ownClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

// fake is a server that answers as a test wants, and records its requests.
type fake struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // method and URI
}

func newFake(t *testing.T, answer http.HandlerFunc) *fake {
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.RequestURI)
		f.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.asked...)
}

func (f *fake) client(t *testing.T, opts ...Option) *Client {
	own := []Option{WithHTTPClient(ownClient)}
	c, err := New(f.URL, "a-token", append(own, opts...)...)
	require.NoError(t, err)
	return c
}

func writeJSON(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func writeProblem(w http.ResponseWriter, p Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func unavailable(w http.ResponseWriter, retryAfter string) {
	w.Header().Set("Retry-After", retryAfter)
	writeProblem(w,
		Problem{Type: "about:blank", Title: "Service Unavailable", Status: 503, Code: "unavailable",
			Detail: "not now"})
}

func taskN(n int) SubmittedTask {
	return SubmittedTask{ID: fmt.Sprintf("t.1.%d", n), Type: "t", Stage: "s", Status: StatusPending}
}
