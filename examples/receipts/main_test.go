package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/worker"
)

// An event that comes again writes no second line.
func TestEachEventHasOneLine(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "receipts")
	out, err := os.Create(name)
	require.NoError(t, err)
	defer out.Close()
	r := newReceipts(out)
	failed := worker.FinalEvent{ID: "final-mail.1.7.3", Data: worker.FinalTask{ID: "mail.1.7",
		Status: asyncflow.StatusFailed, Attempts: 2, Error: "no such user"}}
	done := worker.FinalEvent{ID: "final-mail.1.7.5", Data: worker.FinalTask{ID: "mail.1.7",
		Status: asyncflow.StatusSucceeded, Attempts: 3, Result: []byte(`{"sent":true}`)}}
	for _, e := range []worker.FinalEvent{failed, failed, done, failed} {
		require.NoError(t, r.ended(t.Context(), e))
	}
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "mail.1.7 failed after 2 attempts: no such user\n"+
		`mail.1.7 succeeded after 3 attempts: {"sent":true}`+"\n", string(text))
	require.NoError(t, out.Close())
	again := failed
	again.ID = "final-mail.1.8.1"
	require.Error(t, r.ended(t.Context(), again), "what wasn't written comes again")
	require.False(t, r.done[again.ID])
}
