package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While the database hangs, callers of /readyz get the result of the last check, and don't keep
// their connections until the next one fails. Once the database answers, so does /readyz.
func TestReadyAnswersSoonWhileTheDatabaseHangs(t *testing.T) {
	b := setup(t)
	ready := func() int { return b.callAs("", http.MethodGet, "/readyz", "").status }
	require.Equal(t, 200, ready())
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE asyncflow.schema_versions`)
	require.NoError(t, err)
	require.Equal(t, 503, ready())
	const calls = 20 // each took some 2.5 s
	began := time.Now()
	for range calls {
		require.Equal(t, 503, ready())
	}
	assert.Less(t, time.Since(began), calls*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Eventually(t, func() bool { return ready() == 200 }, patience, 10*time.Millisecond)
}
