package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// inSmallSteps makes the database refuse to delete more edges than JobBatch by one statement.
func (b *bundle) inSmallSteps() {
	b.t.Helper()
	b.exec(`CREATE FUNCTION tenant_acme.check_step() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM gone) > 1000 THEN RAISE 'too many at once'; END IF; RETURN NULL;
		END $$`)
	b.exec(`CREATE TRIGGER steps AFTER DELETE ON tenant_acme.edges REFERENCING OLD TABLE AS gone
		FOR EACH STATEMENT EXECUTE FUNCTION tenant_acme.check_step()`)
	require.Equal(b.t, 1000, store.JobBatch)
}

// manyEdges gives a task more edges than one step deletes.
func (b *bundle) manyEdges(id asyncflow.TaskID) {
	b.t.Helper()
	b.exec(`INSERT INTO tenant_acme.edges (type, id, n, on_type, on_id, on_failure, status)
		SELECT number, $1, i, number, $1, 'run', 'succeeded' FROM tenant_acme.task_types,
		generate_series(1, 2500) i WHERE name = $2`, id.Number, id.Type)
}

func TestARollIsDroppedWithItsEdgesInSteps(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	b.roll()
	kept := b.submit(newTask(`1`))[0].ID
	b.manyEdges(id)
	b.manyEdges(kept)
	b.inSmallSteps()
	drained, err := b.DrainRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.True(t, drained)
	_, err = b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	b.idle(true)
	assert.False(t, b.drop(b.Clock.Now().Add(-time.Hour)))
	assert.Equal(t, 5000, b.count(`SELECT count(*) FROM tenant_acme.edges`))
	assert.True(t, b.drop(b.Clock.Now().Add(time.Hour)))
	assert.Equal(t, 2500, b.count(`SELECT count(*) FROM tenant_acme.edges`))
}

func TestATypeIsDeletedWithItsEdgesInSteps(t *testing.T) { eachSet(t, typeWithEdges) }

func typeWithEdges(t *testing.T, b *bundle) {
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	b.manyEdges(id)
	b.inSmallSteps()
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	var deleting store.Deleting
	for {
		var err error
		deleting, err = b.DeleteRows(t.Context(), tenant, deleting)
		require.NoError(t, err)
		assert.LessOrEqual(t, deleting.Rows, 2*store.JobBatch)
		if !deleting.More {
			break
		}
	}
	assert.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.edges`))
	has, err := b.HasDeletedTypes(t.Context(), tenant)
	require.NoError(t, err)
	assert.False(t, has)
}
