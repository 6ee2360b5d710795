package governance

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A type is visited while it has something to do, when something is announced, and once in every
// sweep. Other types are left alone.
func TestAttention(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	types := map[string]*store.Type{}
	for _, name := range []string{"idle", "leased", "ready", "soon", "far", "blocked"} {
		types[name] = &store.Type{Tenant: "acme",
			StoredType: store.StoredType{TaskType: asyncflow.TaskType{Name: name}}}
	}
	a := &attention{now: func() time.Time { return now }, heard: map[store.TypeKey]bool{},
		ahead: map[store.TypeKey]time.Time{},
		seen:  map[store.TypeKey]visit{}}
	pick := func(at time.Time) []string {
		names := a.pick(types, at, 0)
		slices.Sort(names)
		return names
	}
	look := func(at time.Time) {
		a.keep("acme", pick(at), []store.Overview{
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
	assert.Equal(t, []string{"leased", "ready", "soon"}, pick(now.Add(20*time.Second)), "it runs out")
	busy = []string{"leased", "ready", "soon"}
	assert.Equal(t, append([]string{"far"}, busy...), pick(now.Add(31*time.Second)), "its time comes")
	a.hear(types["idle"].Key(), now.Add(25*time.Second))
	a.hear(types["idle"].Key(), now.Add(time.Hour))
	assert.Equal(t, busy, pick(now.Add(25*time.Second-1)), "it is worth it later")
	assert.Equal(t, append([]string{"idle"}, busy...), pick(now.Add(25*time.Second)))
	assert.Equal(t, busy, pick(now.Add(25*time.Second)), "it was looked at")
	assert.Equal(t, all, pick(now.Add(sweep)), "the sweep")
	assert.Equal(t, append([]string{"far"}, busy...), pick(now.Add(sweep*3/4-time.Millisecond)),
		"not yet")
	a.keep("acme", []string{"idle", "ready"}, []store.Overview{{Type: types["ready"]}}, now)
	assert.Equal(t, []string{"idle", "leased", "soon"}, pick(now.Add(20*time.Second)),
		"a look that failed is taken again")
	a.forget()
	assert.Equal(t, all, pick(now))
	look(now)
	a.all = true
	assert.Equal(t, all, pick(now), "without news from other nodes")
	a.all = false
	look(now)
	every := func(at time.Time) []string {
		return slices.Sorted(slices.Values(a.pick(types, at,
			3*time.Second)))
	}
	a.hear(types["far"].Key(), now)
	a.hear(types["blocked"].Key(), now.Add(time.Second))
	a.hear(types["blocked"].Key(), now.Add(time.Hour))
	assert.Empty(t, every(now.Add(time.Second-1)), "they were looked at a moment ago")
	assert.Equal(t, []string{"blocked"}, every(now.Add(time.Second)), "at the time that was told")
	assert.Empty(t, every(now.Add(2*time.Second)))
	assert.Equal(t, []string{"far", "ready", "soon"}, every(now.Add(3*time.Second)),
		"what was heard isn't forgotten")
	a.keep("acme", []string{"ready", "leased"},
		[]store.Overview{{Type: types["ready"], Ready: now},
			{Type: types["leased"], Lease: now.Add(time.Second)}}, now)
	assert.Equal(t, []string{"leased"}, every(now.Add(time.Second)), "its lease runs out")

	a.hear(types["idle"].Key(), now)
	a.tidy(map[string]map[string]*store.Type{"acme": {"far": types["far"]}})
	assert.Len(t, a.seen, 1)
	assert.Empty(t, a.heard)
	assert.Empty(t, a.ahead)
	assert.Less(t, sweep, asyncflow.Soon)
}
