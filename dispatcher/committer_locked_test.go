package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// How long neighbours submit: when nothing is locked, and beside a locked tenant.
var (
	aloneFor  = time.Duration(longform.Size(1, 3)) * time.Second
	besideFor = time.Duration(longform.Size(2, 5)) * time.Second
)

// neighbours are tenants: the first one with many task types, the others with one each.
type neighbours struct {
	*node
	t       *testing.T
	tenants []string
	mu      sync.Mutex
	tasks   map[store.TypeKey][]asyncflow.TaskID // that were accepted
	refused map[string]int                       // submits, by tenant
}

func (b *bundle) neighbours(n *node, count int) *neighbours {
	b.t.Helper()
	all := &neighbours{node: n, t: b.t, tasks: map[store.TypeKey][]asyncflow.TaskID{},
		refused: map[string]int{}}
	for i := range count {
		slug := fmt.Sprint("neighbour", i)
		_, err := n.CreateTenant(b.t.Context(), slug, asyncflow.Quotas{})
		require.NoError(b.t, err)
		all.tenants = append(all.tenants, slug)
		for j := range typesOf(slug) {
			name := fmt.Sprint("kind", j)
			_, _, err := n.PutTaskType(b.t.Context(), slug,
				asyncflow.TaskType{Name: name,
					Stages: []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
			require.NoError(b.t, err)
			_, err = n.CreateEndpoint(b.t.Context(), slug, asyncflow.Endpoint{
				ID: fmt.Sprintf("0190a6f0-0000-7000-8000-%012d", 100*(i+1)+j), Type: name,
				Stage: "only",
				URL:   "http://worker/" + name, Weight: 1})
			require.NoError(b.t, err)
		}
	}
	return all
}

func typesOf(tenant string) int {
	if tenant == "neighbour0" {
		return 24
	}
	return 1
}

// submitFor submits single tasks steadily for each of some tenants, until ctx ends and all are
// answered. It returns how long each submit took.
func (all *neighbours) submitFor(ctx context.Context, tenants []string) (took []time.Duration) {
	var running sync.WaitGroup
	for i, tenant := range tenants {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				running.Go(func() {
					kind := fmt.Sprint("kind", (5*i+n)%typesOf(tenant))
					d := all.submitOne(store.TypeKey{Tenant: tenant, Type: kind})
					all.mu.Lock()
					defer all.mu.Unlock()
					took = append(took, d)
				})
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	running.Wait()
	return took
}

// steadily is submitFor for a time.
func (all *neighbours) steadily(d time.Duration, tenants []string) []time.Duration {
	ctx, cancel := context.WithTimeout(all.t.Context(), d)
	defer cancel()
	return all.submitFor(ctx, tenants)
}

// p99 submits steadily for a time, and returns the longest time of a submit but for 1 %.
func (all *neighbours) p99(what string, d time.Duration, tenants []string) time.Duration {
	took := all.steadily(d, tenants)
	slices.Sort(took)
	worst := took[len(took)*99/100]
	all.t.Logf("%s: %d submits, p50 %s, p99 %s, longest %s", what, len(took), took[len(took)/2],
		worst,
		took[len(took)-1])
	return worst
}

// hardlyLonger checks that submits take less than most during a lock. A machine that stalls just
// then delays them, too: so measure tries it five times.
func (all *neighbours) hardlyLonger(measure func() (during, most time.Duration)) {
	all.t.Helper()
	for try := 1; ; try++ {
		during, most := measure()
		if during < most {
			return
		}
		require.Less(all.t, try, 5, "%s, at most %s", during, most)
	}
}

func (all *neighbours) submitOne(key store.TypeKey) time.Duration {
	task := asyncflow.NewTask{Type: key.Type, Context: json.RawMessage(`{}`)}
	began := time.Now()
	r := all.Submit(all.t.Context(), key.Tenant, []asyncflow.NewTask{task})[0]
	took := time.Since(began)
	all.mu.Lock()
	defer all.mu.Unlock()
	if r.Err != nil {
		all.refused[key.Tenant]++
	} else {
		all.tasks[key] = append(all.tasks[key], r.ID)
	}
	return took
}

// lockTenant locks all tables of a tenant against everything, until unlock is called.
func (b *bundle) lockTenant(tenant string) (unlock func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	defer conn.Close(b.t.Context())
	rows, err := conn.Query(b.t.Context(),
		`SELECT format('LOCK TABLE %I.%I IN ACCESS EXCLUSIVE MODE', schemaname, tablename)
		FROM pg_tables WHERE schemaname = $1 ORDER BY 1`,
		"tenant_"+tenant)
	require.NoError(b.t, err)
	locks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return pgtest.Hold(b.t, b.url, locks...)
}

// While a tenant's tables are locked, the submits of others take hardly longer than before or
// after. Nothing is lost, and the tenant goes on when the lock is gone.
func TestLockedTenantHoldsUpNoOther(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	all := b.neighbours(n, 8)
	others := all.tenants[1:]
	all.steadily(time.Second, all.tenants) // connections are opened, and statements prepared
	all.hardlyLonger(func() (during, most time.Duration) {
		before := all.p99("before", aloneFor, all.tenants)
		unlock := b.lockTenant(all.tenants[0])
		var ofLocked sync.WaitGroup
		ofLocked.Go(func() { all.steadily(besideFor, slices.Repeat(all.tenants[:1], 14)) })
		during = all.p99("during", besideFor, others)
		assert.Positive(t, n.WritesApart())
		unlock()
		ofLocked.Wait()
		for _, tenant := range others {
			assert.Zero(t, all.refused[tenant])
		}
		count := all.refused[all.tenants[0]]
		after := all.p99("after", aloneFor, all.tenants)
		assert.Equal(t, count, all.refused[all.tenants[0]], "it goes on")
		return during, max(3*before, 3*after, 150*time.Millisecond)
	})
	require.Eventually(t, func() bool {
		return n.WritesApart() == 0
	}, patience, 20*time.Millisecond)
	for key, ids := range all.tasks {
		for _, id := range ids {
			task, err := n.AwaitFinal(t.Context(), key.Tenant, id, patience)
			require.NoError(t, err)
			require.Equal(t, asyncflow.StatusFailed, task.Status)
			require.Equal(t, 1, task.Attempt)
		}
	}
}

// The same holds for tasks with idempotency keys: each of their types gets batches of its own.
func TestLockedTableOfKeyedTasksHoldsUpNoOther(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	all := b.neighbours(n, 8)
	others := all.tenants[1:]
	all.steadily(time.Second, all.tenants)
	keys := 0
	all.hardlyLonger(func() (during, most time.Duration) {
		before := all.p99("before", aloneFor, all.tenants)
		unlock := b.lock("tenant_neighbour0.task_1")
		var waiting sync.WaitGroup
		for i := range 2 * typesOf("neighbour0") {
			task := asyncflow.NewTask{Type: fmt.Sprint("kind", i/2), Context: json.RawMessage(`{}`)}
			task.Options.Key = fmt.Sprint(keys)
			keys++
			waiting.Go(func() {
				assert.NoError(t, n.Submit(t.Context(), "neighbour0",
					[]asyncflow.NewTask{task})[0].Err)
			})
		}
		during = all.p99("during", besideFor, others)
		unlock()
		waiting.Wait()
		return during, max(4*before, 250*time.Millisecond)
	})
	for _, tenant := range others {
		assert.Zero(t, all.refused[tenant])
	}
}
