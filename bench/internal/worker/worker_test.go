package worker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// delivery is what a node sends for task n.
func delivery(id string, n int, callback string) string {
	return `{"task_id":"` + id + `","type":"a","stage":"call","context":` +
		string(payload.Append(nil, n, payload.Usual)) +
		`,"callback":{"url":"` + callback + `","token":"secret"}}`
}

// post sends a body to a path of the worker.
func (w *worker) post(t *testing.T, path, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.routes(newCompleter(t.Context())).
		ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return rec
}

func TestWorkerAnswersABatch(t *testing.T) {
	t.Parallel()
	w := &worker{}
	rec := w.post(t, BatchPath,
		`{"deliveries":[`+delivery("a.1.1", 3, "")+`,`+delivery("a.1.2", 5, "")+`]}`)
	require.Equal(t, http.StatusOK, rec.Code)
	assert.JSONEq(t, `{"results":[{"task_id":"a.1.1"},{"task_id":"a.1.2"}]}`, rec.Body.String())
	assert.Equal(t, Counts{2, 2}, w.counts)
	assert.NotZero(t, w.arrivals[3])
	assert.NotZero(t, w.arrivals[5])
	assert.Zero(t, w.arrivals[4])
	assert.Equal(t, http.StatusBadRequest, w.post(t, BatchPath, `{"deliveries":[]}`).Code)
}

func TestWorkerOfATree(t *testing.T) {
	t.Parallel()
	w := &worker{}
	rec := w.post(t, ChildPath, delivery("a.1.1", 3, ""))
	require.Equal(t, http.StatusOK, rec.Code)
	assert.Equal(t, `{"output":{"n":3}}`, rec.Body.String())
	assert.Equal(t, Counts{1, 0}, w.counts)
	rec = w.post(t, JoinPath, `{"task_id":"a.1.2","context":{"count":2,"results":[{"n":3},{"n":3}]}}`)
	require.Equal(t, http.StatusOK, rec.Code)
	assert.Equal(t, Counts{2, 1}, w.counts)
	assert.NotZero(t, w.arrivals[3])
	assert.Equal(t, http.StatusBadRequest, w.post(t, JoinPath, `{}`).Code)
}

func TestWorkerCompletesLater(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
	}))
	defer api.Close()
	w := &worker{}
	rec := w.post(t, AcceptPath, delivery("a.1.1", 3, api.URL+"/v1/callbacks/a.1.1"))
	require.Equal(t, http.StatusAccepted, rec.Code)
	select {
	case call := <-calls:
		assert.Equal(t, "POST /v1/callbacks/a.1.1/complete Bearer secret", call)
	case <-time.After(2 * time.Minute):
		t.Fatal("no completion came")
	}
}

func TestWorkerTakesItsTime(t *testing.T) {
	t.Parallel()
	w := &worker{}
	start := time.Now()
	require.Equal(t, http.StatusOK, w.post(t, AfterPath+"20ms", delivery("a.1.1", 3, "")).Code)
	assert.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	assert.Equal(t, Counts{1, 1}, w.counts)
	require.Equal(t, http.StatusNotFound,
		w.post(t, AfterPath+"soon", delivery("a.1.1", 3, "")).Code)
}
