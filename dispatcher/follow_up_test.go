package dispatcher_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// A timer of the store may call a committer that is closed, as its store is by then.
func TestFollowUpAfterClose(t *testing.T) {
	b := setup(t)
	s, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "closed"})
	require.NoError(t, err)
	var log bytes.Buffer
	c := dispatcher.NewCommitter(s, slog.New(slog.NewTextHandler(&log, nil)))
	c.Close()
	s.Close()
	c.TellFollowUp(tenant)
	assert.Empty(t, log.String())
}
