package store_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// smallNumbers are all columns with a near end, and what happens there or keeps them from it.
var smallNumbers = map[string]string{
	"again of fan_outs":                                     "100,000 children at most",
	"agreed of voters":                                      "it stays at a billion",
	"at of outbox":                                          "as in fan_outs",
	"attempt of journal, lease, ready, wait":                "max_attempts is 100 at most; a redrive begins at 1",
	"attempts of endpoint_minutes":                          "a minute is too short",
	"batch_max_tasks of endpoints":                          "the API's limit",
	"begin_pos of table_sets":                               "TestEndOfRolls",
	"bytes of signals":                                      "as long as a context at most",
	"cancelled of fan_outs, outbox":                         "as in fan_outs",
	"codes of endpoint_minutes":                             "a minute is too short",
	"count of fan_outs, spawns":                             "100,000 children at most",
	"end_pos of retired_tenants, retired_types, table_sets": "TestEndOfRolls",
	"failed of fan_outs, outbox":                            "as in fan_outs",
	"failures of endpoint_minutes, jobs":                    "a minute is too short; TestRecordJob",
	"fan_out of outbox":                                     "it is the seq of a fan-out",
	"first_pos of table_sets":                               "TestEndOfRolls",
	"from_pos of task_types":                                "TestEndOfRolls",
	"id of schema_versions":                                 "as many as there are files",
	"latencies of endpoint_minutes, type_minutes":           "a minute is too short",
	"max_in_flight of endpoints":                            "the API's limit",
	"n of edges":                                            "100 dependencies at most",
	"number of deleted_types, locks, task_types":            "TestEndOfVersions",
	"on_type of edges":                                      "as in task_types",
	"position of rolls":                                     "TestEndOfRolls",
	"progress of lease":                                     "a percentage",
	"remaining_types of rolls":                              "as in task_types",
	"seq of checkpoints, fan_outs, journal, lease, notifications, ready, spawns, wait": "TestEndOfAJournal",
	"spawned of fan_outs":                             "100,000 children at most",
	"starts of fan_outs":                              "100,000 children at most",
	"depth of spawns":                                 "MaxDepth",
	"types of fan_outs, spawns":                       "as in task_types",
	"places of fan_outs":                              "100,000 children at most",
	"tree of fan_outs":                                "MaxTree",
	"status of audit, journal":                        "an HTTP status",
	"succeeded of fan_outs, outbox":                   "as in fan_outs",
	"to_redrive of fan_outs":                          "100,000 children at most",
	"version of schedules, task_types, type_versions": "TestEndOfVersions",
	"waits of fan_outs":                               "a seq",
	"weight of endpoints":                             "the API's limit",
	"target of notifications":                         "as in task_types",
	"alerts of tenant_trouble":                        "rows of open alerts",
	"remaining of flow_turns":                         "the weight of a key, 1,000 at most",
	"start of lifetimes":                              "a seq",
	"trim_type of rolls":                              "as in task_types",
	"type of checkpoints, claim_stages, claim_windows, content_cursors, content_waits, edges, fan_outs, flow_turns, journal, lease, lifetimes, notifications, outbox, past_keys, " +
		"ready, search, signal_waits, signals, spawns, task, voters, votes, wait": "as in task_types",
}

func TestSmallNumbers(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	rows, err := b.db.Query(t.Context(), `
		SELECT column_name || ' of ' || string_agg(DISTINCT regexp_replace(table_name, '_\d+$', ''),
		    ', ' ORDER BY regexp_replace(table_name, '_\d+$', ''))
		FROM information_schema.columns
		WHERE table_schema IN ('tenant_acme', 'asyncflow')
		  AND coalesce(nullif(data_type, 'ARRAY'), udt_name) IN ('smallint', 'integer', '_int2', '_int4')
		GROUP BY column_name ORDER BY 1`)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(smallNumbers)), found,
		"what keeps the number from its end?")
}

// refused calls do, and makes it fail plainly.
func refused(t *testing.T, want string, err error) {
	t.Helper()
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, want)
}

// A type or a schedule with the last version stays as it is.
func TestEndOfVersions(t *testing.T) {
	b := setup(t)
	pipe := twoStages()
	b.put(pipe)
	s := b.minutely()
	b.putSchedule(s)
	b.exec(`UPDATE tenant_acme.task_types SET version = $1`, math.MaxInt32)
	b.exec(`UPDATE tenant_acme.schedules SET version = $1`, math.MaxInt32)
	b.put(pipe)
	pipe.ScheduleLimit++
	_, _, err := b.PutTaskType(t.Context(), tenant, pipe)
	refused(t, "the versions of task type pipe can't be counted any further", err)
	s.CatchUpLimit++
	_, _, err = b.PutSchedule(t.Context(), tenant, s)
	refused(t, "the versions of schedule minutely can't be counted", err)
	assert.Equal(t, math.MaxInt32, b.schedule(s.Name).Version)
	b.exec(`SELECT setval('tenant_acme.type_numbers', $1)`, math.MaxInt32)
	pipe.Name = "other"
	_, _, err = b.PutTaskType(t.Context(), tenant, pipe)
	refused(t, "task types can't be counted", err)
	b.submit(newTask(`1`))
}

// A roll without numbers left is followed by another one. The last one that ids can name takes all
// further tasks, and nothing comes after it.
func TestEndOfRolls(t *testing.T) {
	b := setup(t)
	b.own = true
	b.put(twoStages())
	b.exec(`UPDATE tenant_acme.rolls SET next_number = $1`, int64(asyncflow.FirstBySQL-1<<32))
	id := b.submit(newTask(`1`))[0].ID
	assert.Equal(t, "pipe.2.1", id.String())

	b.exec(`INSERT INTO tenant_acme.retired_types VALUES ('last', $1), ('none', $2)`,
		asyncflow.MaxPosition-1, asyncflow.MaxPosition)
	last := withOwnSet(twoStages())
	last.Name = "last"
	b.put(last)
	task := newTask(`1`)
	task.Type = "last"
	id = b.submit(task)[0].ID
	assert.Equal(t, "last.4194303.1", id.String())
	same, err := asyncflow.ParseTaskID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, same)
	assert.Equal(t, asyncflow.StatusPending, b.task(id).Status)
	known, err := b.Catalog.Type(tenant, "last")
	require.NoError(t, err)
	opened, err := b.OpenRoll(t.Context(), known.Set())
	require.NoError(t, err)
	assert.False(t, opened)
	b.exec(`UPDATE tenant_acme.rolls SET next_number = $1`, int64(asyncflow.FirstBySQL-1<<32))
	b.expireBlock()
	_, _, err = b.AllotNumbers(t.Context(), known, 1)
	refused(t, `all 4194303 rolls of "last" have been used`, err)
	last.Name = "none"
	_, _, err = b.PutTaskType(t.Context(), tenant, last)
	refused(t, "rolls", err)
}

// A task with a full journal still fans out, ends and is read. If it would go back in line it
// fails, its parent and those that depend on it go on, and nobody can change or redrive it.
func TestEndOfAJournal(t *testing.T) {
	b := setupFanOut(t)
	const seq = asyncflow.MaxJournal
	id := b.submit(newTask(`{"items":[1,2]}`))[0].ID
	b.exec(b.at(1, `UPDATE {ready} SET seq = $1`), seq)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{Count: 2,
				FanOut: asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled}}})
	b.followUp()
	b.exec(b.at(1, `UPDATE {ready} SET seq = $1`), seq)
	children := b.leaseAll(b.known(), 2)
	require.Equal(t, seq, children[0].Seq)
	b.settle(b.known(), children[0], asyncflow.Outcome{Kind: asyncflow.OutcomeReleased,
		Error: "away"})
	b.settle(b.known(), children[1], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "bad"})
	b.followUp()
	for i, why := range []string{"away", "bad"} {
		task := b.comesTo(children[i].ID, asyncflow.StatusFailed)
		assert.Equal(t,
			"it was tried or given back 32000 times; that is the limit. The last time: "+why,
			task.Error)
		_, err := b.Redrive(t.Context(), tenant, task.ID, store.Redrive{})
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	}
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, "second", task.Stage)
	_, err := b.Change(t.Context(), tenant, id, asyncflow.Patch{Priority: asyncflow.Priority{9}})
	refused(t, "its journal has 30000 rows", err)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	b.comesTo(id, asyncflow.StatusFailed)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	refused(t, "its journal has 30000 rows", err)
	all, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	assert.NotEmpty(t, all)
}
