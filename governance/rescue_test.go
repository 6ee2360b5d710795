package governance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// An attempt that was answered with 202 ends when its max_processing_time is over, though its
// lease was known to stand for the longer timeout of its stage.
func TestRescueOfAShortStage(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "a", Notify: true})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(c.Close)
	gov, err := governance.New(s, c, governance.Config{})
	require.NoError(t, err)
	rescue, err := gov.Job("rescue")
	require.NoError(t, err)
	b := &bundle{Store: s, Committer: c, gov: gov}
	spec := asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{{Name: "only", Timeout: asyncflow.Duration(time.Hour), MaxProcessingTime: asyncflow.Duration(time.Second)}}}
	_, _, err = s.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	pipe, err := s.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	l := b.submitAndLease(t, pipe, 1)[0]
	n, err := rescue.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it stands for an hour")
	c.Accept(tenant, l, s.Clock.Now().Add(time.Second), func(err error) { require.NoError(t, err) })
	require.Eventually(t, func() bool {
		n, err := rescue.Run(t.Context())
		require.NoError(t, err)
		return n == 1
	}, patience, 10*time.Millisecond)
}
