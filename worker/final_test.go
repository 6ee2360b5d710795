package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// sendEvent sends a body as an event, signed with a secret.
func (b *bundle) sendEvent(secret, body string) (int, string) {
	b.t.Helper()
	signer, err := signing.NewSigner(secret)
	require.NoError(b.t, err)
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+"/ended?a=1",
		bytes.NewReader([]byte(body)))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/json")
	require.NoError(b.t, signing.Sign(req.Header, "final-mail.1.7.3", time.Now(), []byte(body),
		[]signing.Signer{signer}))
	resp, err := ownClient.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, string(text)
}

func event() asyncflow.FinalEvent {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return asyncflow.NewFinalEvent(asyncflow.TaskID{Type: "mail", Number: 1<<40 | 7}, 3,
		asyncflow.FinalTask{Status: asyncflow.StatusSucceeded, Key: "k", Attempts: 2,
			CreatedAt: at, FinishedAt: at.Add(time.Second), Result: []byte(`{"n": 1e400}`)})
}

// A worker gets the event as it was sent, and says that it was received. What fails comes again.
func TestHandleFinal(t *testing.T) {
	b := setup(t)
	doc := string(event().Document())
	status, text := b.sendEvent(secret, doc)
	require.Equal(t, http.StatusNotFound, status, "%s", text)
	var got []FinalEvent
	var fail error
	b.worker.HandleFinal(func(_ context.Context, e FinalEvent) error {
		got = append(got, e)
		if e.Data.Key == "panic" {
			panic("oh")
		}
		return fail
	})
	status, _ = b.sendEvent(secret, doc)
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, []FinalEvent{event()}, got)
	fail = errors.New("the disk is full")
	status, text = b.sendEvent(secret, doc)
	require.Equal(t, 500, status)
	require.JSONEq(t, `{"error":"the disk is full"}`, text)
	e := event()
	e.Data.Key = "panic"
	status, text = b.sendEvent(secret, string(e.Document()))
	require.Equal(t, 500, status)
	require.Contains(t, text, "panic: oh")
	require.Len(t, got, 3)
	require.Zero(t, b.worker.InFlight())

	status, _ = b.sendEvent("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", doc)
	require.Equal(t, 401, status)
	for _, bad := range []string{`{"type":"task.failed"}`,
		`{"type":"task.failed","id":"x","data":{"id":"mail.1.7","status":"running"}}`,
		`{"type":"task.failed","id":7}`} {
		status, _ = b.sendEvent(secret, bad)
		require.Equal(t, 400, status, bad)
	}
	require.Len(t, got, 3, "nothing of that was handled")
}
