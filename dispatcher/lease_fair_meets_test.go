package dispatcher_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// fairTurns holds a fair type with one stage, and an endpoint with a limit. Each delivery waits to
// be ended.
type fairTurns struct {
	*node
	t     *testing.T
	nodes []*node
	sent  chan string // the keys of the deliveries, as they begin
	end   chan struct{}
}

// startFairTurns starts nodes on which the type is paused.
func startFairTurns(t *testing.T, limit string, names ...string) *fairTurns {
	t.Helper()
	b := setup(t)
	b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = ` + limit + ` WHERE stage = 'first'`)
	f := &fairTurns{t: t, sent: make(chan string, 1000), end: make(chan struct{}, 1000)}
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		f.sent <- d.Lease.Options.FlowKey
		<-f.end
		return done
	}
	for _, name := range names {
		f.nodes = append(f.nodes, b.start(name, dispatcher.Config{}, send))
	}
	f.node = f.nodes[0]
	t.Cleanup(func() { close(f.end) }) // before the nodes are stopped
	f.put(t, func(t *asyncflow.TaskType) {
		t.Stages = t.Stages[:1]
		t.Flow = &asyncflow.Flow{Fair: asyncflow.FairKeyFirst}
	}, f.nodes...)
	f.pause()
	return f
}

// pause pauses the type, and returns when all nodes know it and lease nothing.
func (f *fairTurns) pause() {
	f.t.Helper()
	f.Pause(f.t, "pipe")
	for _, n := range f.nodes[1:] {
		require.Eventually(f.t, func() bool {
			pipe, err := n.Catalog.Type(tenant, "pipe")
			return err == nil && pipe.Paused()
		}, patience, 20*time.Millisecond)
	}
}

func (f *fairTurns) resume() {
	f.t.Helper()
	_, err := f.Resume(f.t.Context(), tenant, "pipe", 0)
	require.NoError(f.t, err)
}

// line submits tasks in one call: one for each letter, which is its key.
func (f *fairTurns) line(keys string) {
	f.t.Helper()
	var tasks []asyncflow.NewTask
	for _, key := range keys {
		tasks = append(tasks, asyncflow.NewTask{Type: "pipe", Context: []byte(`1`),
			Options: asyncflow.Options{FlowKey: string(key)}})
	}
	for _, r := range f.Submit(f.t.Context(), tenant, tasks) {
		require.NoError(f.t, r.Err)
	}
}

// next returns the key of the next delivery.
func (f *fairTurns) next() string {
	f.t.Helper()
	select {
	case key := <-f.sent:
		return key
	case <-time.After(patience):
		require.Fail(f.t, "no task is delivered")
		return ""
	}
}

// turns ends as many deliveries as there are keys, one at a time, and checks which key's turn each
// of the next ones is.
func (f *fairTurns) turns(want string) {
	f.t.Helper()
	var got strings.Builder
	for range want {
		f.end <- struct{}{}
		got.WriteString(f.next())
	}
	require.Equal(f.t, want, got.String())
}

// settled waits until no task is running.
func (f *fairTurns) settled() {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		all, err := f.Stats(f.t.Context(), tenant, "pipe")
		require.NoError(f.t, err)
		return all[0].Running == 0
	}, patience, 20*time.Millisecond)
}

// A pause keeps the turns: after the resume they go on with the next key, and keys that came
// meanwhile stand in their place in the ring.
func TestFairPause(t *testing.T) {
	f := startFairTurns(t, "1", "a")
	f.line("aaaaaabbbbbbcccccc")
	f.resume()
	require.Equal(t, "a", f.next())
	f.turns("bcab")
	f.pause()
	f.end <- struct{}{}
	f.settled()
	f.line("ddd000")
	assert.Empty(t, f.sent, "the type is paused")
	f.resume()
	require.Equal(t, "c", f.next())
	f.turns("d0abcd0abc")
}

// The capacity of an endpoint is used by turns, on two nodes together, whichever of the tasks were
// filed under it before.
func TestFairLimitOfAnEndpoint(t *testing.T) {
	f := startFairTurns(t, "3", "a", "b")
	f.line(strings.Repeat("a", 30) + "bbbbbbcccccc")
	f.resume()
	require.ElementsMatch(t, []string{"a", "b", "c"}, []string{f.next(), f.next(), f.next()})
	f.turns("abcabcabc")
	f.line("d")
	f.turns("dabcabcaaa")
	assert.Empty(t, f.sent, "no more are in flight than the limit")
}

// While the circuit breaker of the only endpoint is open, nothing begins. Once it is closed, the
// tasks come by turns, and so do tasks that were submitted meanwhile.
func TestFairBreaker(t *testing.T) {
	f := startFairTurns(t, "1", "a")
	const endpoint = "0190a6f0-0000-7000-8000-000000000000"
	now := f.Clock.Now()
	set, err := f.SetHealth(t.Context(), tenant, endpoint, asyncflow.Health{},
		asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, set)
	f.line(strings.Repeat("a", 12) + "bbbccc")
	f.resume()
	last := f.submitKeyed("d")
	f.waitsFor(t, last, asyncflow.WaitUnhealthy)
	assert.Empty(t, f.sent, "the breaker is open")
	require.Eventually(t, func() bool {
		return f.health(t, "first").State == asyncflow.HealthOpen
	}, patience, 20*time.Millisecond)
	set, err = f.SetHealth(t.Context(), tenant, endpoint, f.health(t, "first"),
		asyncflow.Health{State: asyncflow.HealthClosed, Since: now.Add(-time.Hour)})
	require.NoError(t, err)
	require.True(t, set)
	first := f.next()
	ring := strings.Repeat("abcd", 2)
	at := strings.Index(ring, first)
	require.GreaterOrEqual(t, at, 0)
	f.turns(ring[at+1 : at+4])
	f.line("e")
	var got strings.Builder
	for range 5 {
		f.end <- struct{}{}
		got.WriteString(f.next())
	}
	assert.Equal(t, 1, strings.Count(got.String(), "e"), "its turn comes within one round: %s",
		got.String())
}

// submitKeyed submits one task.
func (f *fairTurns) submitKeyed(key string) asyncflow.TaskID {
	f.t.Helper()
	r := f.Submit(f.t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
		Options: asyncflow.Options{FlowKey: key}}})[0]
	require.NoError(f.t, r.Err)
	return r.ID
}
