package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// While each lease that takes old tasks fails after seconds, new tasks of the type begin. Once such
// leases can succeed, the old ones do.
func TestNewTasksBeginWhileLeasesFail(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	limited := twoStages()
	limited.MaxInFlight = 1000
	for name, spec := range map[string]asyncflow.TaskType{
		"unlimited": twoStages(), "limited": limited,
	} {
		t.Run(name, func(t *testing.T) {
			testNewTasksWhileLeasesFail(t, spec)
		})
	}
}

func testNewTasksWhileLeasesFail(t *testing.T, spec asyncflow.TaskType) {
	b := setup(t)
	kind := b.put(spec)
	b.fillKeys(1, 3, 100)
	b.exec(b.at(1, `
		CREATE FUNCTION tenant_acme.old_is_slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
			IF OLD.order_time < now() - interval '30 min' THEN PERFORM pg_sleep(30); END IF;
			RETURN OLD; END$$;
		CREATE TRIGGER old_is_slow BEFORE DELETE ON {ready} FOR EACH ROW
			EXECUTE FUNCTION tenant_acme.old_is_slow()`))
	failed := 0
	lease := func() (leases []asyncflow.Lease) {
		var err error
		if spec.MaxInFlight == 0 {
			leases, _, err = b.Lease(t.Context(), kind, 10)
		} else {
			var got store.LimitedLease
			got, err = b.LeaseLimited(t.Context(), kind, 10,
				func(store.InFlight) store.Admission { return &doorman{} })
			leases = got.Leases
		}
		if err != nil {
			t.Log(err)
			failed++
		}
		return leases
	}
	var begun []asyncflow.Lease
	eventually(t, "a new task begins", func() bool {
		b.submit(newTask(`1`))
		begun = lease()
		return len(begun) > 0
	})
	assert.GreaterOrEqual(t, failed, 2)
	for _, l := range begun {
		assert.Less(t, b.Clock.Now().Sub(l.OrderTime), patience)
	}
	b.exec(b.at(1, `DROP TRIGGER old_is_slow ON {ready}`))
	eventually(t, "an old task begins", func() bool {
		for _, l := range lease() {
			if b.Clock.Now().Sub(l.OrderTime) > patience {
				return true
			}
		}
		return false
	})
}
