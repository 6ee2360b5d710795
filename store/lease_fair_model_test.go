package store_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// fairMachine drives a fair type on two nodes; one of them loses connections at any statement.
type fairMachine struct {
	nodePair
	t       *rapid.T
	weights map[string]int
	fair    asyncflow.Fairness
	// passed counts, for each key with a due task, the tasks that other keys started since.
	passed map[string]map[string]int
	given  []asyncflow.Lease         // all that a node ever got
	ended  map[asyncflow.TaskID]int  // how often a task was done
	tasks  map[asyncflow.TaskID]bool // cancelled?
}

// fairRow is a row of a ready table.
type fairRow struct {
	id     int64
	key    string
	order  time.Time
	raised bool // it is ahead by its priority
}

// line returns the tasks in line, in their order, and the numbers of tasks with a lease.
func (m *fairMachine) line() (ready []fairRow, leased map[int64]bool) {
	rows, err := m.b.db.Query(m.b.t.Context(), m.b.at(0, `
		SELECT id, key, order_time, since IS NOT NULL FROM {readies} r
		UNION ALL SELECT id, NULL, NULL, false FROM {lease} ORDER BY 3, 1`))
	require.NoError(m.t, err)
	leased = map[int64]bool{}
	for rows.Next() {
		var id int64
		var key *string
		var order *time.Time
		var raised bool
		require.NoError(m.t, rows.Scan(&id, &key, &order, &raised))
		if order == nil {
			leased[id] = true
			continue
		}
		require.NotNil(m.t, key, "each row of a fair type has a key")
		ready = append(ready, fairRow{id, *key, *order, raised})
	}
	require.NoError(m.t, rows.Err())
	return ready, leased
}

var fairKeys = []string{"", "a", "b", "c", "d"}

func (m *fairMachine) submit(t *rapid.T) {
	var all []asyncflow.NewTask
	key := rapid.SampledFrom(fairKeys).Draw(t, "key")
	for range rapid.IntRange(1, 8).Draw(t, "tasks") {
		task := keyed(key, "1")
		if rapid.Bool().Draw(t, "raised") {
			task.Options.Priority = asyncflow.Priority{5}
		}
		all = append(all, task)
	}
	b, end := m.node(t)
	results := b.Submit(m.b.t.Context(), tenant, all)
	end()
	for _, r := range results {
		require.NoError(t, r.Err)
		m.tasks[r.ID] = false
	}
}

func (m *fairMachine) lease(t *rapid.T) {
	b, end := m.node(t)
	m.leaseFrom(t, b, rapid.IntRange(1, 6).Draw(t, "most"))
	end()
}

// leaseFrom leases up to n tasks on a node, and compares what is leased then with what was in line.
// What the other node submitted may not be announced yet, and stay below the mark of a slow lease
// for a while, see package lowwater: these leases look at everything.
func (m *fairMachine) leaseFrom(t *rapid.T, b *bundle, n int) {
	b.DoubtMarks()
	before, _ := m.line()
	now := m.b.Clock.Now()
	if other := m.mortal.Clock.Now(); other.Before(now) {
		now = other
	}
	g := store.LimitedLease{Busy: true}
	var err error
	for until := time.Now().Add(patience); g.Busy && err == nil; {
		require.True(t, time.Now().Before(until), "the type's lock is free in the end")
		g, err = b.LeaseLimited(m.b.t.Context(), b.known(), n,
			func(store.InFlight) store.Admission { return &doorman{} })
	}
	require.True(t, err == nil || b == m.mortal, "%v", err)
	started, due := m.compare(t, before, now)
	if err == nil { // nobody knows of other leases
		require.Len(t, g.Leases, started)
		require.GreaterOrEqual(t, started, min(n, due), "no capacity is left unused")
		m.given = append(m.given, g.Leases...)
	}
}

// compare checks what a lease took. It returns the number, and how many tasks were due at a time.
func (m *fairMachine) compare(t *rapid.T, before []fairRow, now time.Time) (started, due int) {
	_, leased := m.line()
	starts, passedBy, isDue := map[string]int{}, map[string]bool{}, map[string]bool{}
	first, left := m.fair == asyncflow.FairPriorityFirst, false // with a head start, as all before
	for _, row := range before {
		first = first && row.raised
		left = left || first && !leased[row.id] && !row.order.After(now)
		switch {
		case leased[row.id]:
			require.False(t, passedBy[row.key], "the tasks of %q start in order", row.key)
			started++
			if !first {
				starts[row.key]++
			}
		default:
			passedBy[row.key] = true
		}
		if !row.order.After(now) {
			isDue[row.key] = isDue[row.key] || !first || !leased[row.id]
			due++
		}
	}
	require.False(t, left && len(starts) > 0, "head starts go before turns")
	maps.DeleteFunc(m.passed, func(key string, _ map[string]int) bool {
		return !isDue[key] || starts[key] > 0
	})
	for key, waits := range isDue {
		if starts[key] > 0 || !waits {
			continue
		}
		if m.passed[key] == nil {
			m.passed[key] = map[string]int{}
		}
		for other, n := range starts {
			m.passed[key][other] += n
			require.LessOrEqual(t, m.passed[key][other], max(1, m.weights[other]),
				"%q starts tasks before %q has its turn", other, key)
		}
	}
	return started, due
}

// settle ends any lease ever given out.
func (m *fairMachine) settle(t *rapid.T) {
	if len(m.given) == 0 {
		t.Skip("no lease yet")
	}
	l := rapid.SampledFrom(m.given).Draw(t, "lease")
	kind := rapid.SampledFrom([]asyncflow.OutcomeKind{asyncflow.OutcomeDone,
		asyncflow.OutcomeDone, asyncflow.OutcomeFailed, asyncflow.OutcomeReleased}).
		Draw(t, "outcome")
	b, end := m.node(t)
	m.end(t, b, l, kind)
	end()
}

// end ends a lease, unless it is over.
func (m *fairMachine) end(
	t *rapid.T, b *bundle, l asyncflow.Lease, kind asyncflow.OutcomeKind,
) {
	var stands bool
	require.NoError(t, m.b.db.QueryRow(m.b.t.Context(), m.b.at(0, `SELECT EXISTS (SELECT
		FROM {lease} WHERE id = $1 AND seq = $2)`), l.ID.Number, l.Seq).Scan(&stands))
	r := b.settle(m.b.known(), l, asyncflow.Outcome{Kind: kind})
	require.NoError(t, r.Err)
	if !stands {
		return
	}
	require.False(t, r.Stale)
	if kind == asyncflow.OutcomeDone && l.Stage == "second" {
		m.ended[l.ID]++
	}
}

// expire lets half of the leases run out, also leases that no node knows.
func (m *fairMachine) expire(t *rapid.T) {
	m.b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id % 2 = $1`,
		rapid.IntRange(0, 1).Draw(t, "half"))
	_, err := m.b.Rescue(m.b.t.Context(), m.b.known())
	require.NoError(t, err)
}

func (m *fairMachine) cancel(t *rapid.T) {
	if len(m.tasks) == 0 {
		t.Skip("no task yet")
	}
	ids := slices.SortedFunc(maps.Keys(m.tasks), func(a, b asyncflow.TaskID) int {
		return int(a.Number - b.Number)
	})
	id := rapid.SampledFrom(ids).Draw(t, "task")
	if _, err := m.b.Cancel(m.b.t.Context(), tenant, id, ""); m.b.won(err) {
		m.tasks[id] = true
	}
}

// roll opens another ready table; the one before is still leased from.
func (m *fairMachine) roll(t *rapid.T) {
	if set := m.b.known().Set(); set.End-set.First >= 3 {
		t.Skip("enough rolls")
	}
	m.b.rollOn()
	require.NoError(t, m.mortal.Catalog.Refresh(m.b.t.Context()))
}

func (m *fairMachine) reweigh(t *rapid.T) {
	m.weights = map[string]int{"a": rapid.IntRange(1, 4).Draw(t, "weight of a"), "c": 2}
	pipe := patient()
	m.fair = rapid.SampledFrom([]asyncflow.Fairness{asyncflow.FairKeyFirst,
		asyncflow.FairPriorityFirst}).Draw(t, "fair")
	pipe.Flow = &asyncflow.Flow{Fair: m.fair, Weights: m.weights}
	m.b.put(pipe)
	require.NoError(t, m.mortal.Catalog.Refresh(m.b.t.Context()))
	clear(m.passed) // perhaps turns began with the weights before
}

func (m *fairMachine) check(*rapid.T) { m.b.checkTokens("pipe") }

// finish does what is left. Then each task is over, and was done once if at all.
func (m *fairMachine) finish() {
	for until := time.Now().Add(patience); ; {
		require.True(m.t, time.Now().Before(until), "all tasks end")
		m.leaseFrom(m.t, m.b, 10)
		ready, leased := m.line()
		if len(ready)+len(leased) == 0 {
			break
		}
		for _, l := range m.given {
			m.end(m.t, m.b, l, asyncflow.OutcomeDone)
		}
		m.given = nil
		m.b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
		_, err := m.b.Rescue(m.b.t.Context(), m.b.known())
		require.NoError(m.t, err)
	}
	for id, cancelled := range m.tasks {
		task := m.b.task(id)
		require.True(m.t, task.Status.Final(), "%s", task.Status)
		require.Equal(m.t, map[bool]int{true: 1}[task.Status == asyncflow.StatusSucceeded],
			m.ended[id])
		require.True(m.t, !cancelled || task.Status == asyncflow.StatusCancelled)
	}
}

// Random submits, leases, ends, cancels, rolls, other weights and leases that run out, on two nodes
// and with connections that are lost at any statement: no task of a fair type is lost or done
// twice, the tasks of a key start in order, and while a task of a key is due, another key starts no
// more tasks than its weight before it. With priority first, head starts go before that.
func TestFairModel(t *testing.T) {
	longform.Costly(t)
	eachSet(t, fairModel)
}

func fairModel(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	pair := newNodePair(t, b)
	checkSequences(t, 10, func(t *rapid.T) {
		b.clear()
		b.exec(`TRUNCATE tenant_acme.flow_turns`)
		m := &fairMachine{nodePair: pair, t: t, passed: map[string]map[string]int{},
			ended: map[asyncflow.TaskID]int{}, tasks: map[asyncflow.TaskID]bool{}}
		m.reweigh(t)
		t.Repeat(map[string]func(*rapid.T){"submit": m.submit, "submit more": m.submit,
			"lease": m.lease, "lease more": m.lease, "lease again": m.lease, "settle": m.settle,
			"settle more": m.settle, "expire": m.expire, "cancel": m.cancel, "roll": m.roll,
			"reweigh": m.reweigh, "": m.check})
		m.finish()
	})
}
