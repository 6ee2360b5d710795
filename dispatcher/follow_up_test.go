package dispatcher_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

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

// A tenant has one timer: an earlier one takes its place.
func TestATenantHasOneFollowUpTimer(t *testing.T) {
	t.Parallel()
	assert.True(t, dispatcher.EarlierTimerReplaces(time.Hour, time.Minute))
	assert.False(t, dispatcher.EarlierTimerReplaces(time.Minute, time.Hour))
}

// A tenant may be deleted before its timer goes off: then no background job will follow up either,
// and nobody is warned.
func TestFollowUpOfATenantThatIsGone(t *testing.T) {
	b := setup(t)
	s, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "gone",
		NoRoles: pgtest.OnCitus()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	var log bytes.Buffer
	c := dispatcher.NewCommitter(s, slog.New(slog.NewTextHandler(&log, nil)))
	_, err = c.FollowUp(t.Context(), "gone")
	require.Error(t, err)
	c.TellFollowUp("gone")
	c.Close()
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
