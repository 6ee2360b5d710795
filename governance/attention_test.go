package governance

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A type is visited while there is something to do in it, when something is announced, and with all
// types of its tenant when rows were written there. Other types are left alone.
func TestAttention(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	types := map[string]*store.Type{}
	for _, name := range []string{"idle", "leased", "ready", "soon", "far", "blocked"} {
		types[name] = &store.Type{Tenant: "acme",
			StoredType: store.StoredType{TaskType: asyncflow.TaskType{Name: name}}}
	}
	a := &attention{tenants: map[string]*watch{}, news: new(store.Listener)}
	hear := func(key store.TypeKey, announced store.Announced) {
		a.hear(store.News{Ready: map[store.TypeKey]store.Announced{key: announced}})
	}
	tokens := uint64(1)
	after := func(at time.Time, every time.Duration) []string {
		names, _ := a.pick("acme", types, tokens, at, every)
		slices.Sort(names)
		return names
	}
	pick := func(at time.Time) []string { return after(at, 0) }
	look := func(at time.Time) {
		names, all := a.pick("acme", types, tokens, at, 0)
		a.keep("acme", names, all, tokens, []store.Overview{
			{Type: types["idle"]}, {Type: types["leased"],
				Lease: now.Add(20 * time.Second)}, {Type: types["ready"], Ready: now},
			{Type: types["soon"], Wait: now.Add(30 * time.Second)}, {Type: types["far"],
				Wait: now.Add(90 * time.Second)},
			{Type: types["blocked"], BlockedStages: []string{"one"}}}, at)
	}
	all := []string{"blocked", "far", "idle", "leased", "ready", "soon"}
	assert.Equal(t, all, pick(now), "none is known")
	look(now)
	busy := []string{"ready", "soon"}
	assert.Equal(t, busy, pick(now))
	assert.Equal(t, busy, pick(now.Add(20*time.Second-1)))
	assert.Equal(t, []string{"leased", "ready", "soon"}, pick(now.Add(20*time.Second)),
		"it runs out")
	busy = []string{"leased", "ready", "soon"}
	assert.Equal(t, append([]string{"far"}, busy...), pick(now.Add(31*time.Second)),
		"its time comes")
	hear(types["idle"].Key(), store.Announced{Later: now.Add(25 * time.Second)})
	hear(types["idle"].Key(), store.Announced{Later: now.Add(time.Hour)})
	assert.Equal(t, busy, pick(now.Add(25*time.Second-1)), "it is worth it later")
	assert.Equal(t, append([]string{"idle"}, busy...), pick(now.Add(25*time.Second)))
	assert.Equal(t, busy, pick(now.Add(25*time.Second)), "it was looked at")
	assert.Equal(t, append([]string{"far"}, busy...), pick(now.Add(revisit/2-time.Millisecond)),
		"nothing was written")
	assert.Equal(t, all, pick(now.Add(revisit)), "in any case")
	look(now)
	tokens++
	assert.Equal(t, all, pick(now), "rows were written")
	look(now)
	assert.Equal(t, []string{"ready", "soon"}, pick(now))
	a.failed("acme")
	assert.Equal(t, all, pick(now), "a visit that failed is repeated")
	look(now)
	a.hear(store.News{Lost: true})
	assert.Equal(t, all, pick(now))
	look(now)

	every := func(at time.Time) []string { return after(at, 3*time.Second) }
	hear(types["far"].Key(), store.Announced{Due: now})
	hear(types["blocked"].Key(), store.Announced{Later: now.Add(time.Second)})
	hear(types["blocked"].Key(), store.Announced{Later: now.Add(time.Hour)})
	assert.Empty(t, every(now.Add(time.Second-1)), "they were looked at a moment ago")
	assert.Equal(t, []string{"blocked"}, every(now.Add(time.Second)), "at the time that was told")
	assert.Empty(t, every(now.Add(2*time.Second)))
	assert.Equal(t, []string{"far", "ready", "soon"}, every(now.Add(3*time.Second)),
		"what was heard isn't forgotten")
	a.keep("acme", []string{"ready", "leased"}, false, tokens,
		[]store.Overview{{Type: types["ready"], Ready: now},
			{Type: types["leased"], Lease: now.Add(time.Second)}}, now)
	assert.Equal(t, []string{"leased"}, every(now.Add(time.Second)), "its lease runs out")
	tokens++
	assert.Equal(t, []string{"leased"}, every(now.Add(3*time.Second-1)), "soon enough")
	assert.Equal(t, all, every(now.Add(3*time.Second)))

	look(now)
	hear(store.TypeKey{Tenant: "acme", Type: "gone"}, store.Announced{Due: now})
	hear(store.TypeKey{Tenant: "gone", Type: "gone"}, store.Announced{Due: now})
	pick(now)
	assert.Empty(t, a.tenants["acme"].heard)
	assert.NotContains(t, a.tenants["acme"].seen, "idle", "there is nothing to remember")
	a.tidy(map[string]map[string]*store.Type{"acme": types})
	assert.Len(t, a.tenants, 1)
	assert.Less(t, sweep, asyncflow.Soon)
}

// A tenant rests until its state changes, or its time comes.
func TestRests(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	versions := map[string]int64{"a": 1, "b": 1}
	activity := map[string]uint64{"a": 7, "b": 8}
	var r rests
	restless := func(at time.Time) []string {
		return slices.Sorted(maps.Keys(r.restless(versions, activity, at)))
	}
	assert.Equal(t, []string{"a", "b"}, restless(now), "none is known")
	r.rest("a", state{7, 1}, time.Time{})
	r.rest("b", state{8, 1}, now.Add(time.Second))
	assert.Empty(t, restless(now))
	assert.Equal(t, []string{"b"}, restless(now.Add(time.Second)))
	versions["b"], activity["a"] = 2, 9
	assert.Equal(t, []string{"a", "b"}, restless(now))
	r.rest("a", state{7, 1}, time.Time{})
	assert.Equal(t, []string{"a", "b"}, restless(now),
		"the state of a visit that something overtook")
	delete(versions, "a")
	assert.Equal(t, []string{"b"}, restless(now))
	assert.Len(t, r.tenants, 1)
}

// Without Postgres' counts, each tenant is visited once in a sweep, but not all of them at once.
func TestSweeps(t *testing.T) {
	if sweep == 1 {
		t.Skip("not on Citus: its tests visit all tenants, see VisitAlways")
	}
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	changed := map[time.Duration]bool{}
	for i := range 50 {
		tenant := fmt.Sprint("t", i)
		first := sweepOf(tenant, now)
		assert.Equal(t, first+1, sweepOf(tenant, now.Add(sweep)))
		at := time.Second
		for sweepOf(tenant, now.Add(at)) == first {
			at += time.Second
		}
		changed[at] = true
	}
	assert.Greater(t, len(changed), 10)
}
