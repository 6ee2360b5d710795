package dispatcher_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// However long the database is away, a write is tried about once a second. The pause between two
// tries once doubled until it overflowed: after 40 tries there was none.
func TestTriesArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		tries := 0
		away := errors.New("the database is away")
		c := dispatcher.NewIdleCommitter()
		err := c.Persist(ctx, store.TypeKey{Tenant: tenant}, func() error {
			if tries++; tries > 1_000 {
				cancel()
			}
			return away
		})
		assert.ErrorIs(t, err, away)
		assert.Less(t, tries, 140)
	})
}
