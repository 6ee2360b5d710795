package dispatcher_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A timer may go off after the committer is closed, and its store, too.
func TestFollowUpAfterClose(t *testing.T) {
	b := setup(t)
	s, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "closed",
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	var log bytes.Buffer
	c := dispatcher.NewCommitter(s, slog.New(slog.NewTextHandler(&log, nil)))
	c.Close()
	s.Close()
	c.TellFollowUp(tenant)
	assert.Empty(t, log.String())
}

// The question whether others stand in line reads the news first, if nobody else did: otherwise a
// new task would overtake one that was announced before.
func TestNewsAreReadBeforeALineIsCalledEmpty(t *testing.T) {
	b := setup(t)
	n, _ := b.startIdle()
	n.StopListening()
	n.Wakeups.Announce(pipeKey, n.Clock.Now())
	n.IsIdle(pipeKey)
	assert.Empty(t, n.Unread().Ready)
}
