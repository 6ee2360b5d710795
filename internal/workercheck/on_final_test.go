package workercheck

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/worker"
)

const eventSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// Nothing is wrong with a receiver made with package worker.
func TestReceiverOfEvents(t *testing.T) {
	t.Parallel()
	w, err := worker.New(worker.Config{Keys: []string{eventSecret},
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer w.Close(context.Background())
	w.HandleFinal(func(context.Context, worker.FinalEvent) error { return nil })
	report := tryOut(t, Config{Secret: eventSecret, OnFinal: true}, w)
	assert.Empty(t, named(report, Failed))
	assert.Equal(t, 9, report.Passed)
}

// Each fault of a receiver is found by the check for it.
func TestBadReceiversOfEvents(t *testing.T) {
	t.Parallel()
	type request struct {
		http.Header
		id, kind string
		body     []byte
		signed   bool // by the secret, whenever that was
	}
	verifier, err := signing.NewVerifier(eventSecret)
	require.NoError(t, err)
	var mu sync.Mutex
	seen := map[string]bool{}
	for check, refuses := range map[string]func(r request) bool{
		"bad signature": func(request) bool { return false },
		"old timestamp": func(r request) bool { return !r.signed },
		"each status":   func(r request) bool { return r.kind == "task.cancelled" },
		"the same event again": func(r request) bool {
			mu.Lock()
			defer mu.Unlock()
			again := seen[r.id]
			seen[r.id] = true
			return again
		},
		"long result":    func(r request) bool { return len(r.body) > 64<<10 },
		"unknown fields": func(r request) bool { return bytes.Contains(r.body, []byte("unknown")) },
		"challenge":      func(r request) bool { return r.kind == "asyncflow.challenge" },
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			report := tryOut(t, Config{Secret: eventSecret, OnFinal: true},
				http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					now := time.Now()
					one := request{Header: r.Header, id: r.Header.Get("Webhook-Id"), body: body}
					_, err := verifier.Verify(r.Header, body, now)
					_, old := verifier.Verify(r.Header, body, now.Add(-2*signing.Tolerance))
					one.signed = err == nil || old == nil
					var doc struct{ Type, Challenge string }
					_ = json.Unmarshal(body, &doc)
					one.kind = doc.Type
					trusts := check == "bad signature" || check == "old timestamp"
					if err != nil && !trusts || refuses(one) {
						rw.WriteHeader(401)
						return
					}
					if doc.Challenge != "" {
						rw.Header().Set("Content-Type", "application/json")
						_, _ = rw.Write(body)
						return
					}
					rw.WriteHeader(202)
				}))
			want := []string{check}
			if check == "bad signature" { // it verifies nothing
				want = append(want, "old timestamp")
			}
			assert.Equal(t, want, named(report, Failed))
		})
	}
}
