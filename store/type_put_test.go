package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A type may not begin to use what a running node doesn't know, as it is of an older version.
func TestATypeUsesWhatAllNodesKnow(t *testing.T) {
	b := setup(t)
	old := func(ago string, knows any) {
		b.exec(`DELETE FROM asyncflow.nodes WHERE id = 'old'`)
		b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at, knows)
			VALUES ('old', 'api', 'v0.0.9', now(), now() - $1::interval, $2)`, ago, knows)
	}
	put := func(t asyncflow.TaskType) error {
		_, _, err := b.PutTaskType(b.t.Context(), tenant, t)
		return err
	}
	old("1 s", nil)
	require.NoError(t, put(twoStages()), "it uses nothing new")
	delivering := twoStages()
	delivering.Stages[1].Deliver = &asyncflow.Deliver{Input: true}
	telling := twoStages()
	telling.OnFinal = &asyncflow.OnFinal{URL: "https://shop.example.com/ended"}
	for name, c := range map[string]struct {
		spec asyncflow.TaskType
		uses string
	}{
		"spawn":   {spawning(), "uses spawn and join, "},
		"signals": {approval(), "uses signals, "},
		"links":   {linkedApproval(), "uses signals and links and next, "},
		"deliver": {delivering, "uses deliver, "},
		"ends":    {telling, "uses on_final, "},
		"search":  {searchable(twoStages()), "uses searchable, "},
		"fair":    {fairStages(nil), "uses fair_flow, "},
		"raised":  {priorityStages(), "uses fair_flow and priority_first, "},
	} {
		err := put(c.spec)
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), name)
		require.ErrorContains(t, err, c.uses)
		require.ErrorContains(t, err, "older version (v0.0.9)")
		_, _, err = b.CheckTaskType(t.Context(), tenant, c.spec)
		require.ErrorContains(t, err, c.uses, "a dry run")
	}
	_, err := b.CreateTarget(t.Context(), tenant, "https://shop.example.com", asyncflow.Endpoint{
		ID: uuid.NewString(), Type: telling.OnFinal.TargetOf(), URL: telling.OnFinal.URL})
	require.ErrorContains(t, err, "uses on_final, ", "the first target of a task")
	old("1 s", []string{"signals", "later", "spawn", "next"})
	require.ErrorContains(t, put(spawning()), "uses join, ")
	require.ErrorContains(t, put(linkedApproval()), "uses links, ")
	require.NoError(t, put(approval()))
	old("1 s", asyncflow.Capabilities)
	require.NoError(t, put(spawning()))
	old("1 s", nil)
	spec := spawning()
	spec.Stages[0].Priority = 9
	require.NoError(t, put(spec), "it used it before")
	old("16 s", nil)
	require.NoError(t, put(linkedApproval()), "the node is gone")
}

// A duration in days is for nodes that can read it, wherever it stands.
func TestDaysAreForNodesThatKnowThem(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	day := asyncflow.Duration{}
	require.NoError(t, day.UnmarshalText([]byte("1d")))
	before := asyncflow.Schedule{Name: "before", Type: "pipe", Every: day,
		Context: []byte(`1`)}.WithDefaults()
	_, _, err := b.PutSchedule(t.Context(), tenant, before)
	require.NoError(t, err)
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at)
		VALUES ('old', 'api', 'v0.0.9', now(), now())`)
	before.Context = []byte(`2`)
	_, _, err = b.PutSchedule(t.Context(), tenant, before)
	require.NoError(t, err, "it used days before")
	for name, change := range map[string]func(*asyncflow.TaskType){
		"retention": func(t *asyncflow.TaskType) { t.Retention = day },
		"roll_age":  func(t *asyncflow.TaskType) { t.RollAge = day },
		"snooze":    func(t *asyncflow.TaskType) { t.Stages[1].MaxSnooze = day },
		"window": func(t *asyncflow.TaskType) {
			t.Stages[1] = asyncflow.Stage{Name: t.Stages[1].Name, Mode: asyncflow.ModeClaim,
				Window: &asyncflow.Window{Tasks: 1, Per: day}}
		},
		"wait": func(t *asyncflow.TaskType) { *t = approval(); t.Stages[1].Wait.Timeout = day },
	} {
		t.Run(name, func(t *testing.T) {
			changed := twoStages()
			change(&changed)
			_, _, err := b.PutTaskType(t.Context(), tenant, changed.WithDefaults())
			require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, "days")
		})
	}
	_, _, err = b.PutSchedule(t.Context(), tenant, asyncflow.Schedule{Name: "daily", Type: "pipe",
		Every: day, Context: []byte(`1`)}.WithDefaults())
	require.ErrorContains(t, err, "it uses days, ")
	_, err = b.PutAlerts(t.Context(), tenant, store.Alerts{
		Rules: asyncflow.AlertRules{BacklogAge: day}})
	require.ErrorContains(t, err, "it uses days, ")
	for _, rules := range []asyncflow.AlertRules{{FailedForGood: 1}, {FailedInTotal: 1},
		{BlockedKey: asyncflow.NewDuration(time.Hour)},
		{LongWait: asyncflow.NewDuration(time.Hour)}} {
		_, err = b.PutAlerts(t.Context(), tenant, store.Alerts{Rules: rules})
		require.ErrorContains(t, err, "it uses alerts, ")
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	}
}

func TestPutTaskType(t *testing.T) {
	b := setupTwo(t)
	spec := twoStages()
	stored, created, err := b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	assert.True(t, created)
	assert.Equal(t, 1, stored.Version)
	stored, created, err = b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, 1, stored.Version, "the same document again changes nothing")
	spec.ScheduleLimit = 7
	stored, _, err = b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 7}, []int{stored.Version, stored.ScheduleLimit})
	_, err = b.TaskType(t.Context(), "other", "pipe")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "another tenant has none of it")
}

func TestPutTaskTypeAtOnce(t *testing.T) {
	b := setup(t)
	var wg sync.WaitGroup
	created := make([]bool, 8)
	for i := range created {
		wg.Go(func() {
			var err error
			_, created[i], err = b.PutTaskType(t.Context(), tenant, twoStages())
			assert.NoError(t, err)
		})
	}
	waitAll(t, &wg)
	n := 0
	for _, c := range created {
		if c {
			n++
		}
	}
	assert.Equal(t, 1, n, "one of them made it")
}

func TestOtherNodeLearnsOfChanges(t *testing.T) {
	b := setup(t)
	far := open(t, b.url, "node-2")
	b.put(twoStages())
	eventually(t, "the other node knows the type",
		func() bool { _, err := far.Catalog.Type(tenant, "pipe"); return err == nil })
	e, err := b.CreateEndpoint(t.Context(), tenant,
		asyncflow.Endpoint{ID: "0190a6f0-0000-7000-8000-000000000001", Type: "pipe", Stage: "first",
			URL: "http://x/", Weight: 1})
	require.NoError(t, err)
	eventually(t, "the other node knows the endpoint", func() bool {
		pipe, err := far.Catalog.Type(tenant, "pipe")
		return err == nil && len(pipe.Endpoints("first")) == 1
	})
	require.NoError(t, b.DeleteEndpoint(t.Context(), tenant, e.ID))
	require.Equal(t, asyncflow.CodeNotFound,
		asyncflow.CodeOf(b.DeleteEndpoint(t.Context(), tenant, e.ID)))
	for _, bad := range []asyncflow.Endpoint{{ID: e.ID, Type: "nope", Stage: "first"},
		{ID: e.ID, Type: "pipe", Stage: "nope"}} {
		_, err = b.CreateEndpoint(t.Context(), tenant, bad)
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
}
