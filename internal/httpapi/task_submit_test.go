package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// What is written by hand is what the contract's type says.
func TestSubmittedByHand(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[a-z][a-z0-9_-]{0,39}`)
	zones := rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", -5*3600-1800)})
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		written, encoded := httpapi.SubmittedDocument(store.Submitted{
			ID: asyncflow.NewTaskID(name.Draw(t, "type"),
				rapid.IntRange(1, 1<<22-1).Draw(t, "position"), rapid.Int64Range(1, 1<<40-1).Draw(t, "sequence")),
			Stage:     name.Draw(t, "stage"),
			Status:    rapid.SampledFrom([]asyncflow.Status{asyncflow.StatusPending, asyncflow.StatusWaiting, asyncflow.StatusSucceeded}).Draw(t, "status"),
			OrderTime: rapid.SampledFrom([]time.Time{{}, at.In(zones.Draw(t, "zone"))}).Draw(t, "order time"),
			Existing:  rapid.Bool().Draw(t, "existing"),
		})
		require.Equal(t, string(encoded), string(written))
	})
}
