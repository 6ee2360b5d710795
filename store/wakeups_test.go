package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

func TestWakeupsReachOtherNodes(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	woken := make(chan store.TypeKey, 100)
	far := openWith(t, b.url, "node-2", func(s *store.Store) {
		s.Wakeups.Subscribe(func(k store.TypeKey, _ time.Time) { woken <- k },
			func() { woken <- store.TypeKey{} })
	})
	_ = far
	require.Equal(t, store.TypeKey{}, <-woken,
		"a new LISTEN connection reports possibly lost announcements")
	b.submit(newTask(`1`))
	select {
	case k := <-woken:
		assert.Equal(t, store.TypeKey{Tenant: tenant, Type: "pipe"}, k)
	case <-time.After(patience):
		t.Fatal("no wake-up came")
	}
}
