package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// historyTypes is more types than one transaction of RecordHistory writes.
const historyTypes = 60

// setupHistory returns a node with types that did 2 tasks by minute and 3 by hour each.
func setupHistory(t *testing.T) *bundle {
	b := setup(t)
	spec := twoStages()
	for i := range historyTypes {
		spec.Name = fmt.Sprintf("t%02d", i)
		b.put(spec)
	}
	b.exec(`INSERT INTO tenant_acme.tallies (type, at, submitted)
		SELECT name, now() - c.age, c.n
		FROM tenant_acme.task_types, (VALUES (interval '2 min', 2), ('5 h', 3)) c (age, n)
		WHERE name LIKE 't__'`)
	return b
}

// submittedIn adds up the submitted tasks of a type's history, by hour.
func (b *bundle) submittedIn(taskType string, ago time.Duration) (sum int64) {
	b.t.Helper()
	h, err := b.ReadHistory(b.t.Context(), store.HistoryQuery{Tenant: tenant, Type: taskType,
		From: b.Clock.Now().Add(-ago), Step: time.Hour})
	require.NoError(b.t, err)
	for _, p := range h.Points {
		sum += p.Values[store.HistorySubmitted]
	}
	return sum
}

// checkHistory checks that each task of each type is counted once.
func (b *bundle) checkHistory(ago time.Duration, at int) {
	b.t.Helper()
	for _, name := range []string{"t00", "t31", "t59"} {
		require.EqualValues(b.t, 5, b.submittedIn(name, ago), "%s, died at statement %d", name, at)
	}
	require.EqualValues(b.t, 5*historyTypes, b.submittedIn("", ago), "died at statement %d", at)
	require.Equal(b.t, historyTypes,
		b.count(`SELECT count(DISTINCT type) FROM tenant_acme.type_history`))
}

// A node dies at any statement of a recording, which is several transactions. Another node's next
// recording writes what is missing, and counts nothing twice.
func TestHistoryRecordingSurvivesCrashes(t *testing.T) {
	longform.Costly(t)
	b := setupHistory(t)
	second, line := mortal(t, b)
	for at, lost := range line.deaths(t, 6) {
		b.exec(`DELETE FROM tenant_acme.type_history`)
		line.arm(at, lost, true)
		_, err := second.RecordHistory(t.Context(), tenant, time.Time{})
		require.True(t, line.mend() || err == nil, "%v", err)
		eventually(t, "Postgres has noticed the death", func() bool {
			r, err := b.RecordHistory(t.Context(), tenant, time.Time{})
			require.NoError(t, err)
			return !r.Missed
		})
		b.checkHistory(7*time.Hour, at)
	}
}

// A node dies at any statement of a fold. Each minute is then either a minute or in its hour.
func TestHistoryFoldSurvivesCrashes(t *testing.T) {
	longform.Costly(t)
	b := setupHistory(t)
	second, line := mortal(t, b)
	for at, lost := range line.deaths(t, 4) {
		b.exec(`DELETE FROM tenant_acme.type_history`)
		_, err := b.RecordHistory(t.Context(), tenant, time.Time{})
		require.NoError(t, err)
		b.exec(`UPDATE tenant_acme.type_history SET at = at - interval '2 days'`)
		line.arm(at, lost, true)
		_, err = second.FoldHistory(t.Context(), tenant)
		require.True(t, line.mend() || err == nil, "%v", err)
		b.checkHistory(4*24*time.Hour, at)
		eventually(t, "all is folded", func() bool {
			_, err := b.FoldHistory(t.Context(), tenant)
			require.NoError(t, err)
			return b.count(`SELECT count(*) FROM tenant_acme.type_history WHERE NOT hourly`) == 0
		})
		b.checkHistory(4*24*time.Hour, at)
	}
}
