package dispatcher_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// output is what is logged.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Run doesn't return before it writes the health of an endpoint to which it made the last attempt.
func TestRunWaitsForTheHealth(t *testing.T) {
	b := setup(t)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	lock, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), `SELECT FROM tenant_acme.endpoints FOR UPDATE`)
	require.NoError(t, err)

	n := b.open(store.Config{Node: "a", Notify: true})
	storing, stopStore := context.WithCancel(t.Context())
	stored := make(chan error, 1)
	go func() { stored <- n.Store.Run(storing) }()
	var said output
	d := dispatcher.New(
		n.Committer,
		sendFunc(func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410, Error: "410 Gone"}
		}),
		dispatcher.Config{Log: slog.New(slog.NewTextHandler(&said, nil))},
	)
	running, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- d.Run(running) }()

	id := n.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`)}})[0].ID
	_, err = n.AwaitFinal(t.Context(), tenant, id, patience)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(
			t,
			lock.QueryRow(t.Context(), `SELECT count(*) FROM `+pgtest.Activity()+`
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).
				Scan(&waiting),
		)
		return waiting > 0
	}, patience, 20*time.Millisecond, "the health waits for the lock")
	stop()
	select {
	case <-ran:
		t.Fatal("the health is not written yet")
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, lock.Rollback(t.Context()))
	require.NoError(t, <-ran)
	require.Contains(t, said.String(), "an endpoint gets no tasks")
	stopStore()
	require.NoError(t, <-stored)
}
