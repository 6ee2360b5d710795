package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A history of each type is bounded in what it reads, also if its answer is small.
func TestHistoryOfManyTypesIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		span, step time.Duration
		types      int
		field      string
	}{
		{time.Hour, time.Minute, 300, ""},
		{time.Hour, 5 * time.Minute, 1600, ""},
		{time.Hour, time.Minute, 334, "step is 1m"},
		{day, 30 * time.Minute, 69, ""},
		{day, 30 * time.Minute, 70, "from is 1440 minutes before until, of each of 70 types"},
		{30 * day, day, 138, ""},
		{30 * day, day, 139, "from is 720 hours before until, of each of 139 types"},
	} {
		t.Run(fmt.Sprint(c.span, c.step, c.types), func(t *testing.T) {
			q := Query{From: now.Add(-c.span), Until: now, Step: c.step, ByType: true}
			err := q.boundTypes(c.types)
			if c.field == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.field)
			}
			q.ByType = false
			require.NoError(t, q.boundTypes(c.types))
		})
	}
}
