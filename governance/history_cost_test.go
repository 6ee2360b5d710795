package governance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

var (
	costTypes = flag.Int("types", 10, "how many types TestHistoryOfLiveTypes has")
	costTasks = flag.Int("live", 20, "how many live tasks each of them has")
)

// A recording counts the live tasks of each type, and what each did in the last minute. With -v it
// says what a recording takes of the processor, node and Postgres together; docs/history.md has the
// figures.
func TestHistoryOfLiveTypes(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	var tasks []asyncflow.NewTask
	for i := range *costTypes {
		name := fmt.Sprintf("t%04d", i)
		b.pipe(t, name)
		for n := range *costTasks {
			task := asyncflow.NewTask{Type: name, Context: json.RawMessage(`1`)}
			if n%2 == 1 {
				task.Delay = asyncflow.NewDuration(2 * time.Hour)
			}
			tasks = append(tasks, task)
		}
	}
	for some := range slices.Chunk(tasks, 1000) {
		for _, r := range b.Submit(t.Context(), tenant, some) {
			require.NoError(t, r.Err)
		}
	}
	b.run(t, "history") // the first one looks as far back as the counters go
	for range 5 {
		exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, submitted, attempts, succeeded)
			SELECT name, date_trunc('minute', now()) - interval '1 min', 60, 60, 60
			FROM tenant_acme.task_types WHERE name LIKE 't____';
			INSERT INTO tenant_acme.type_minutes AS m
			  (type, stage, at, latencies, late_votes, closed_windows, attempts, busy)
			SELECT name, 'only', date_trunc('minute', now()) - interval '1 min', '{0,0,0,5}', 0, 0,
			  60, 6 FROM tenant_acme.task_types WHERE name LIKE 't____'
			ON CONFLICT (type, stage, at) DO UPDATE
			SET attempts = m.attempts + 60, busy = m.busy + 6`)
		own, database, began := pgtest.OwnCPU(t), pgtest.CPU(t, url), time.Now()
		rows := b.run(t, "history")
		took := time.Since(began)
		own, database = pgtest.OwnCPU(t)-own, pgtest.CPU(t, url)-database
		t.Logf("a recording of %d types with %d tasks, %d rows: %v, CPU of the node %v, of "+
			"Postgres %v, together %.2f %% of a core, once a minute", *costTypes, len(tasks), rows,
			took, own, database, 100*(own+database).Seconds()/60)
		assert.GreaterOrEqual(t, rows, *costTypes, "it wrote what they did")
	}
	h := b.hours(t, "t0000", time.Minute)
	last := h.Points[len(h.Points)-1].Values
	assert.EqualValues(t, (*costTasks+1)/2, last[store.HistoryPending])
	assert.EqualValues(t, *costTasks/2, last[store.HistoryWaiting])
}
