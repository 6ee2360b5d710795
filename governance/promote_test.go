package governance_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// promote makes up for a lost wake-up: it announces tasks that are overdue.
func TestPromoteAnnouncesWhatIsDue(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	for _, r := range b.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{{Type: "pipe", Context: json.RawMessage(`1`)}}) {
		require.NoError(t, r.Err)
	}
	woken := make(chan store.TypeKey, 10)
	listen(t, b.Store, func(k store.TypeKey, _ time.Time) { woken <- k }, func() {})
	_, err := b.jobs["promote"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, pipe.Key(), <-woken)
}
