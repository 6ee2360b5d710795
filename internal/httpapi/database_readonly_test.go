package httpapi_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// readOnly makes new connections to the test's database read-only, and closes the open ones: the
// server is now like a standby. A connection stays read-only while it is open, like one to a server
// that is no longer the primary.
func (b *bundle) readOnly() {
	b.t.Helper()
	pgtest.NotOnCitus(b.t, "only the coordinator would be read-only")
	name := pgx.Identifier{b.db.Config().Database}.Sanitize()
	for _, sql := range []string{
		`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`, endOthers,
	} {
		_, err := b.db.Exec(b.t.Context(), sql)
		require.NoError(b.t, err)
	}
}

const endOthers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid()`

// writable makes new connections accept writes again. A pooler keeps the old ones until somebody
// ends them.
func (b *bundle) writable() {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(),
		`ALTER DATABASE `+pgx.Identifier{b.db.Config().Database}.Sanitize()+`
			RESET default_transaction_read_only`)
	require.NoError(b.t, err)
	if pgtest.ThroughPooler() {
		_, err := b.db.Exec(b.t.Context(), endOthers)
		require.NoError(b.t, err)
	}
}

// A node with a read-only database reports that it isn't ready, retries its writes, and asks
// callers to retry. It replaces its connections as soon as it can get better ones.
func TestReadOnlyDatabase(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call(http.MethodPost, "/v1/tasks",
		`{"type":"pipe","context":{}}`).status)
	b.readOnly()
	require.Eventually(t, func() bool {
		return b.call(http.MethodGet, "/v1/stats",
			"").status == 200
	},
		patience, 10*time.Millisecond, "reads go on")
	a := b.callAs("", http.MethodGet, "/readyz", "")
	assert.Equal(t, 503, a.status)
	var calling sync.WaitGroup
	for name, call := range map[string]func() answer{
		"submit": func() answer {
			return b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":{}}`)
		},
		"keyed": func() answer {
			return b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":{},"key":"k"}`)
		},
		"change": func() answer { return b.call(http.MethodPost, "/v1/task-types/pipe/pause", "") },
	} {
		calling.Go(func() { // each waits with patience
			a := call()
			assert.Equal(t, 503, a.status, name)
			assert.NotEmpty(t, a.header.Get("Retry-After"), name)
		})
	}
	calling.Wait()

	answers := make(chan answer, 1)
	go func() { answers <- b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":{}}`) }()
	b.writable()
	assert.Equal(t, 201, (<-answers).status, "it was tried again")
	require.Eventually(t, func() bool {
		return b.call(http.MethodPost, "/v1/task-types/pipe/pause", "").status == 200
	}, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		return b.callAs("", http.MethodGet, "/readyz", "").status == 200
	}, patience, 10*time.Millisecond)
}
