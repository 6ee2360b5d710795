package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// inLine returns the contexts with which the live tasks of the type pipe begin.
func (b *bundle) inLine() map[string]int {
	b.t.Helper()
	all := map[string]int{}
	for _, position := range b.known().Rolls() {
		rows, err := b.db.Query(b.t.Context(), b.at(position, `
			SELECT coalesce((SELECT j.output FROM {journal} j WHERE j.type = t.type AND j.id = t.id
			    AND j.output IS NOT NULL ORDER BY j.seq DESC LIMIT 1), t.context)
			FROM {task} t WHERE t.type = {number} AND NOT EXISTS (SELECT FROM {journal} j
			  WHERE j.type = t.type AND j.id = t.id AND j.final IS NOT NULL)`))
		require.NoError(b.t, err)
		for rows.Next() {
			var context string
			require.NoError(b.t, rows.Scan(&context))
			all[context]++
		}
		require.NoError(b.t, rows.Err())
	}
	return all
}

// However leases, submits to two nodes and rolls cross, the context of the last submit that was
// acknowledged is leased, or in line.
func TestReplaceRaces(t *testing.T) {
	longform.Costly(t)
	eachSet(t, replaceRaces)
}

func replaceRaces(t *testing.T, one *bundle) {
	pipe := one.put(twoStages())
	two := open(t, one.url, "node-2")
	require.NoError(t, two.Catalog.Refresh(t.Context()))
	two.own = one.own
	n := longform.Size(30, 400)
	var mu sync.Mutex
	last := map[string]string{}
	var wg sync.WaitGroup
	for c := range 6 {
		key := fmt.Sprint("key ", c)
		wg.Go(func() {
			for i := range n {
				b := []*bundle{one, two}[(i+c)%2]
				context := fmt.Sprintf("%q", fmt.Sprint(key, " ", i))
				task := replacing(key, context, time.Duration(i%2)*time.Millisecond, 0)
				r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
				if asyncflow.CodeOf(r.Err) == asyncflow.CodeUnavailable {
					continue
				}
				if assert.NoError(t, r.Err) {
					mu.Lock()
					last[key] = context
					mu.Unlock()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	begun := map[string]bool{}
	for running, round := true, 0; running; round++ {
		select {
		case <-done:
			running = false
		default:
		}
		if round%20 == 10 {
			one.rollOn()
			pipe = one.known()
		}
		for _, l := range one.lease(pipe, 3) {
			begun[string(l.Context)] = true
			one.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		}
	}
	require.NotEmpty(t, begun)
	waiting := one.inLine()
	for key, context := range last {
		require.True(t, begun[context] || waiting[context] > 0, "%s: %s is lost", key, context)
	}
	one.checkTokens("pipe")
}

// rollOn opens another roll and seals the one before, unless an earlier one is still leased from.
func (b *bundle) rollOn() {
	b.t.Helper()
	ctx := b.t.Context()
	if set := b.known().Set(); set.Begin < set.End {
		_, err := b.EmptyRoll(ctx, set, set.Begin)
		require.NoError(b.t, err)
		_, err = b.DrainRoll(ctx, set)
		require.NoError(b.t, err)
	}
	opened, err := b.OpenRoll(ctx, b.known().Set())
	require.NoError(b.t, err)
	set := b.known().Set()
	for sealed := !opened; !sealed; {
		sealed, err = b.SealRoll(ctx, set, set.End-1)
		require.NoError(b.t, err)
	}
}

// replaceMachine submits to two nodes. One loses a connection at any statement. It knows which
// context of each key must be in line: the last one that was acknowledged, unless it is begun.
type replaceMachine struct {
	nodePair
	keys map[string]*replacedTask
	n    int // contexts
}

type replacedTask struct {
	id      asyncflow.TaskID
	context string
	begun   bool
}

func (m *replaceMachine) key(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
}

func (m *replaceMachine) submit(t *rapid.T) {
	key := m.key(t)
	var tasks []asyncflow.NewTask
	for range rapid.IntRange(1, 3).Draw(t, "at once") {
		m.n++
		delay := time.Hour * time.Duration(rapid.IntRange(0, 1).Draw(t, "delayed"))
		tasks = append(tasks, replacing(key, fmt.Sprint(m.n), delay, 0))
	}
	node, end := m.node(t)
	results := node.Submit(m.b.t.Context(), tenant, tasks)
	end()
	for _, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, results[0].ID, r.ID)
	}
	context := fmt.Sprint(m.n)
	before := m.keys[key]
	if before != nil && !before.begun {
		require.Equal(t, before.id, results[0].ID)
		require.True(t, results[0].Replaced)
	}
	if before != nil && before.begun {
		require.NotEqual(t, before.id, results[0].ID)
	}
	m.keys[key] = &replacedTask{id: results[0].ID, context: context}
}

// begin leases what is due.
func (m *replaceMachine) begin(t *rapid.T) {
	for _, l := range m.b.lease(m.b.known(), 10) {
		w := m.keys[l.Options.Key]
		if w.id == l.ID {
			require.Equal(t, w.context, string(l.Context))
			w.begun = true
		}
		kinds := []asyncflow.OutcomeKind{asyncflow.OutcomeFailed, asyncflow.OutcomeRejected,
			asyncflow.OutcomeDone, asyncflow.OutcomeLost}
		m.b.settle(m.b.known(), l,
			asyncflow.Outcome{Kind: rapid.SampledFrom(kinds).Draw(t, "ends")})
	}
}

func (m *replaceMachine) hurry(t *rapid.T) {
	if w := m.keys[m.key(t)]; w != nil && !w.begun {
		m.b.change(w.id, asyncflow.Patch{RunAt: m.b.Clock.Now()})
	}
}

func (m *replaceMachine) edit(t *rapid.T) {
	if w := m.keys[m.key(t)]; w != nil && !w.begun {
		m.n++
		w.context = fmt.Sprint(m.n)
		m.b.change(w.id, edit(w.context))
	}
}

func (m *replaceMachine) cancel(t *rapid.T) {
	if w := m.keys[m.key(t)]; w != nil && !w.begun {
		_, err := m.b.Cancel(m.b.t.Context(), tenant, w.id, "")
		require.NoError(t, err)
		w.begun = true
	}
}

func (m *replaceMachine) roll(t *rapid.T) {
	if set := m.b.known().Set(); set.End-set.First >= 3 {
		t.Skip("enough rolls")
	}
	m.b.rollOn()
}

func (m *replaceMachine) check(t *rapid.T) {
	waiting := m.b.inLine()
	for key, w := range m.keys {
		if !w.begun {
			require.Equal(t, 1, waiting[w.context], "%s: %s", key, w.context)
		}
	}
	m.b.checkTokens("pipe")
}

// Random submits of some keys, leases, ends, changes, cancels and rolls, with connections that are
// lost at any statement: the context of the last submit of a key is in line until it begins, once.
func TestReplaceModel(t *testing.T) {
	longform.Costly(t)
	eachSet(t, func(t *testing.T, b *bundle) {
		b.put(patient())
		pair := newNodePair(t, b)
		checkSequences(t, 10, func(t *rapid.T) {
			b.clear()
			b.exec(`TRUNCATE tenant_acme.idempotency_keys`)
			m := &replaceMachine{nodePair: pair, keys: map[string]*replacedTask{}}
			t.Repeat(map[string]func(*rapid.T){"submit": m.submit, "begin": m.begin,
				"hurry": m.hurry, "edit": m.edit, "cancel": m.cancel, "roll": m.roll, "": m.check})
		})
	})
}

// A node that dies at any statement of a submit leaves the task as it was, or replaced; and the
// next submit is the one that is run.
func TestReplaceKilledAtAnyStatement(t *testing.T) {
	longform.Costly(t)
	eachSet(t, replaceKilled)
}

func replaceKilled(t *testing.T, b *bundle) {
	b.put(twoStages())
	node, n := mortal(t, b)
	keys := 0
	for _, begun := range []bool{false, true} {
		for _, answers := range []bool{false, true} {
			for statement := 1; ; statement++ {
				keys++
				key := fmt.Sprint(keys)
				first := b.submit(replacing(key, `"old"`, time.Hour, 0))[0].ID
				if begun {
					b.runNow(first)
				}
				known := node.known()
				item := store.NewInsertion(known, node.numbers(known), func() *asyncflow.NewTask {
					task := replacing(key, `"new"`, time.Hour, 0)
					return &task
				}(), b.Clock.Now())
				n.arm(statement, answers, true)
				_, err := node.InsertKeyed(t.Context(), known, []*store.Insertion{&item},
					store.KeysTogether)
				cut := n.mend()
				b.checkTokens("pipe")
				r := b.submit(replacing(key, `"newest"`, time.Hour, 0))[0]
				require.Equal(t, begun, r.ID != first)
				require.Equal(t, `"newest"`, string(b.runNow(r.ID).Context))
				if !cut && err != nil { // by a connection that had been cut before
					require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
					statement--
					continue
				}
				if !cut {
					require.Greater(t, statement, 3)
					break
				}
			}
		}
	}
}

// numbers returns a number for a new task.
func (b *bundle) numbers(t *store.Type) int64 {
	b.t.Helper()
	_, all, err := b.AllotNumbers(b.t.Context(), t, 1)
	require.NoError(b.t, err)
	return all[0]
}
