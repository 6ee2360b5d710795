package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// cutWaits is how many waits for the standby the test ends.
const cutWaits = 60

// Nothing is delivered that may be missing on a synchronous standby, however the waits for it end:
// not what begins with its submit, nor what a lease finds, nor a task of a schedule.
func TestNothingIsDeliveredWithoutTheStandby(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	primary := pgtest.PreparedServer(t, prepare)
	url := primary.URL("postgres")
	standby := pgtest.Standby(t, primary)
	admin, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	count := func(sql string) (n int) {
		_ = admin.QueryRow(context.WithoutCancel(t.Context()), sql).Scan(&n)
		return n
	}
	for _, sql := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '` + pgtest.StandbyName + `'`,
		`SELECT pg_reload_conf()`} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		return count(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	}, patience, 20*time.Millisecond)

	b := &bundle{t, url}
	var delivered atomic.Int64
	n := b.start("n", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			delivered.Add(1)
			return done
		})
	_, _, err = n.PutSchedule(t.Context(), tenant, asyncflow.Schedule{Name: "often", Type: "pipe",
		Context: json.RawMessage(`1`), Every: asyncflow.NewDuration(time.Second)})
	require.NoError(t, err)
	require.NoError(t, standby.Stop(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	submitted := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { submitted <- struct{}{} }()
			for j := 0; ctx.Err() == nil; j++ {
				_, _ = n.TickSchedules(ctx, tenant, n.Submit, nil)
				task := asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(`2`)}
				if i%2 == 0 {
					task.Options.Key = fmt.Sprint(i, " ", j)
				}
				n.Submit(ctx, tenant, []asyncflow.NewTask{task})
			}
		}()
	}
	for cut := 0; cut < cutWaits; {
		how := []string{"pg_cancel_backend", "pg_terminate_backend"}[cut%2]
		cut += count(`SELECT count(` + how + `(pid)) FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND application_name = 'asyncflow'`)
	}
	assert.Zero(t, delivered.Load(), "deliveries without the standby")
	stop()
	pgtest.Server(t, standby.Config())
	for range 4 {
		<-submitted
	}
}
