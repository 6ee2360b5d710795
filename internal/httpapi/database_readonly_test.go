package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readOnly has new connections to the test's database take no writes, and ends those that
// are open: what they see is another server, a standby. Connections stay read-only for as
// long as they are open, as they do when the one that they lead to is no longer the primary.
func (b *bundle) readOnly() {
	b.t.Helper()
	name := pgx.Identifier{b.db.Config().Database}.Sanitize()
	for _, sql := range []string{
		`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`,
	} {
		_, err := b.db.Exec(b.t.Context(), sql)
		require.NoError(b.t, err)
	}
}

// writable has new connections take writes again.
func (b *bundle) writable() {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(),
		`ALTER DATABASE `+pgx.Identifier{b.db.Config().Database}.Sanitize()+`
			RESET default_transaction_read_only`)
	require.NoError(b.t, err)
}

// A node that is connected to a database that takes no writes says that it isn't ready, tries
// what is to be written again, and asks callers to come again. It leaves the connections that
// it had as soon as there is another one to be had.
func TestReadOnlyDatabase(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":{}}`).status)
	b.readOnly()
	require.Eventually(t, func() bool { return b.call(http.MethodGet, "/v1/stats", "").status == 200 },
		patience, 10*time.Millisecond, "reads go on")
	a := b.callAs("", http.MethodGet, "/readyz", "")
	assert.Equal(t, 503, a.status)
	for name, call := range map[string]func() answer{
		"submit": func() answer {
			return b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":{}}`)
		},
		"keyed": func() answer {
			return b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":{},"key":"k"}`)
		},
		"change": func() answer { return b.call(http.MethodPost, "/v1/task-types/pipe/pause", "") },
	} {
		a := call()
		assert.Equal(t, 503, a.status, name)
		assert.NotEmpty(t, a.header.Get("Retry-After"), name)
	}

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
