package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// delivery is what a node sends for the task of a number.
func delivery(id string, n int, callback string) string {
	return `{"task_id":"` + id + `","type":"a","stage":"call","context":` + string(appendContext(nil, n, contextBytes)) +
		`,"callback":{"url":"` + callback + `","token":"secret"}}`
}

func TestWorkerAnswersABatch(t *testing.T) {
	t.Parallel()
	w := &worker{}
	rec := httptest.NewRecorder()
	w.deliverBatch(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"deliveries":[`+delivery("a.1.1", 3, "")+`,`+delivery("a.1.2", 5, "")+`]}`)))
	require.Equal(t, http.StatusOK, rec.Code)
	assert.JSONEq(t, `{"results":[{"task_id":"a.1.1"},{"task_id":"a.1.2"}]}`, rec.Body.String())
	assert.Equal(t, 2, w.deliveries)
	assert.NotZero(t, w.arrivals[3])
	assert.NotZero(t, w.arrivals[5])
	assert.Zero(t, w.arrivals[4])
	rec = httptest.NewRecorder()
	w.deliverBatch(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"deliveries":[]}`)))
	assert.Equal(t, http.StatusBadRequest, rec.Code)
}

func TestWorkerCompletesLater(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
	}))
	defer api.Close()
	w := &worker{}
	rec := httptest.NewRecorder()
	w.deliverLater(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(delivery("a.1.1", 3, api.URL+"/v1/callbacks/a.1.1"))), newAcceptor(t.Context()))
	require.Equal(t, http.StatusAccepted, rec.Code)
	select {
	case call := <-calls:
		assert.Equal(t, "POST /v1/callbacks/a.1.1/complete Bearer secret", call)
	case <-time.After(10 * time.Second):
		t.Fatal("no completion came")
	}
}

func TestContextsOfAllSizes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{contextBytes, 10 << 10, 100 << 10} {
		context := appendContext(nil, 7, size)
		assert.Len(t, context, size)
		assert.True(t, json.Valid(context))
	}
}
