package slots

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A tenant gets few tries at a time, whatever others do. Nothing is kept when all are done.
func TestPerTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perTenant, began := NewPerTenant(2), time.Now()
		took := map[string]time.Duration{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, tenant := range []string{"many", "many", "many", "many", "many", "one"} {
			all.Go(func() {
				defer perTenant.Acquire(tenant)()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				took[tenant] = time.Since(began)
			})
		}
		all.Wait()
		assert.Equal(t, map[string]time.Duration{"many": 3 * time.Second, "one": time.Second}, took)
		assert.Empty(t, perTenant.tenants)
	})
}
