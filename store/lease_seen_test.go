package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Heartbeats of a named worker write no entry of an index (HOT), whatever the name.
func TestHeartbeatsStayHot(t *testing.T) {
	pgtest.NotOnCitus(t, countedThere)
	b := setup(t)
	b.put(twoStages())
	const tasks, beats = 8, 50
	all := make([]asyncflow.NewTask, tasks)
	for i := range all {
		all[i] = newTask(`1`)
	}
	b.submit(all...)
	leases := b.leaseAll(b.known(), tasks)
	name := strings.Repeat("w", asyncflow.MaxWorkerName)
	for n := range beats {
		stands := make(chan bool, tasks)
		now := b.Clock.Now()
		for _, l := range leases {
			b.Extend(tenant, l, now.Add(time.Duration(n)*time.Minute), store.Checkpoint{},
				store.Seen{Beat: now, Worker: name},
				func(ok bool, err error) { stands <- ok && err == nil })
		}
		for range leases {
			require.True(t, receive(t, stands))
		}
	}
	sizes := b.count(`SELECT pg_relation_size('tenant_acme.lease_pkey')::int / 8192`)
	require.LessOrEqual(t, sizes, 2, "pages of the index: its root, and one more page")
	eventually(t, "Postgres has counted", func() bool {
		return b.count(`SELECT n_tup_upd::int FROM pg_stat_user_tables
			WHERE schemaname = 'tenant_acme' AND relname = 'lease'`) >= tasks*beats
	})
	cold := b.count(`SELECT (n_tup_upd - n_tup_hot_upd)::int FROM pg_stat_user_tables
		WHERE schemaname = 'tenant_acme' AND relname = 'lease'`)
	require.Less(t, cold, tasks*beats/5, "updates that wrote entries of indexes")
	require.Equal(t, tasks, b.count(`SELECT count(*) FROM tenant_acme.lease
		WHERE worker = '`+name+`' AND beat_at IS NOT NULL`))
}

// The attempts of many workers keep their own names, also if they are written together.
func TestAttemptsOfManyWorkers(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	const tasks = 10
	all := make([]asyncflow.NewTask, tasks)
	for i := range all {
		all[i] = newTask(`1`)
	}
	b.submit(all...)
	leases := b.leaseAll(pipe, tasks)
	done := make(chan store.Settled, tasks)
	for i, l := range leases {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no",
			Endpoint: "https://worker.example.com", Worker: "w-" + string(rune('a'+i))}
		if i == 0 { // it doesn't name itself
			o.Worker = ""
		}
		b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.Clock.Now())},
			func(r store.Settled) { done <- r })
	}
	for range leases {
		require.Equal(t, store.Settled{}, <-done)
	}
	for i, l := range leases {
		attempts, err := b.Attempts(t.Context(), tenant, l.ID)
		require.NoError(t, err)
		want := "w-" + string(rune('a'+i))
		if i == 0 {
			want = ""
		}
		require.Equal(t, []string{want, "https://worker.example.com", "no"},
			[]string{attempts[0].Worker, attempts[0].Endpoint, attempts[0].Error})
		require.NotEmpty(t, attempts[0].Node)
	}
}

// Attempts that many nodes and workers ran make one statement when they are written together.
func TestJournalOfManyPlaces(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	const tasks = 10
	all := make([]asyncflow.NewTask, tasks)
	for i := range all {
		all[i] = newTask(`1`)
	}
	b.submit(all...)
	leases := b.leaseAll(pipe, tasks)
	_, err := b.db.Exec(t.Context(), b.at(1, `
		CREATE TABLE public.statements (rows int);
		CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO public.statements SELECT count(*) FROM added; RETURN NULL; END $$;
		GRANT INSERT ON public.statements TO public;
		CREATE TRIGGER note AFTER INSERT ON {journal} REFERENCING NEW TABLE AS added
		FOR EACH STATEMENT EXECUTE FUNCTION public.note();
		UPDATE {lease} SET node = 'node-' || id, worker = CASE WHEN id % 2 = 0 THEN 'w-' || id END,
		  until = now() - interval '1 s'`))
	require.NoError(t, err)
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, tasks, n)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM public.statements`), "statements")
	require.Equal(t, tasks, b.count(`SELECT sum(rows)::int FROM public.statements`))
	for _, l := range leases {
		attempts, err := b.Attempts(t.Context(), tenant, l.ID)
		require.NoError(t, err)
		worker := fmt.Sprintf("w-%d", l.ID.Number)
		if l.ID.Number%2 != 0 {
			worker = ""
		}
		require.Equal(t, []string{fmt.Sprintf("node-%d", l.ID.Number), worker},
			[]string{attempts[0].Node, attempts[0].Worker})
	}
}

// The only endpoint of a stage is named as the place of a task only if it was there when the task
// was leased, while the task runs and in its journal.
func TestOnlyEndpointOfALease(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submit(newTask(`1`))
	l := b.leaseOne(b.known())
	e := b.putEndpoint(1)
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	require.Empty(t, b.task(l.ID).Run.Endpoint, "it came later")
	b.loseAll(b.known(), 1)
	l = b.leaseOne(b.known())
	require.Equal(t, []string{e.ID, e.URL},
		[]string{b.task(l.ID).Run.Endpoint, b.task(l.ID).Run.URL})
}
