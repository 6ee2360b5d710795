package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// A role that may submit by SQL does so in its own transactions: an idle node delivers a
// committed task at once, and never a rolled-back one.
func TestSubmitBySQL(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := startNode(t, url, "--job=promote=off") // promote would find a task that NOTIFY missed
	contexts := make(chan string, 10)
	w := startWorker(t,
		func(rw http.ResponseWriter, _ *http.Request, d delivery) { contexts <- string(d.Context) })
	w.pipe(t, p.client(), client.TaskTypeSpec{Stages: []client.Stage{stage("first")}})

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var role string
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT current_database() || '-app'`).Scan(&role))
	name := pgx.Identifier{role}.Sanitize()
	_, err = conn.Exec(t.Context(), `CREATE ROLE `+name)
	require.NoError(t, err)
	defer func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()),
			`RESET ROLE; DROP OWNED BY `+name+`; DROP ROLE `+name)
		assert.NoError(t, err)
	}()
	require.Zero(t, tenants(t, url, "grant-submit", testTenant, role).code)
	_, err = conn.Exec(t.Context(), `SET ROLE `+name)
	require.NoError(t, err)

	submit := func(tx pgx.Tx, context string) (id string) {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT tenant_acme.submit_task('pipe', $1)`,
			context).Scan(&id))
		return id
	}
	for _, doc := range []string{`{"n": 1}`, `{"n": 2}`} { // each finds the node idle
		back, err := conn.Begin(t.Context())
		require.NoError(t, err)
		submit(back, `"taken back"`)
		require.NoError(t, back.Rollback(t.Context()))
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		id := submit(tx, doc)
		require.NoError(t, tx.Commit(t.Context()))
		select {
		case got := <-contexts:
			require.Equal(t, doc, got)
		case <-time.After(patience):
			t.Fatal("the node didn't hear of it")
		}
		task, outcomes := ended(t, p.client(), id)
		require.Equal(t, "first done", outcomes, task.Error)
	}
	require.Empty(t, contexts)
	require.Len(t, w.deliveries(), 2)
}
