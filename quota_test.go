package asyncflow_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestQuotasThatApply(t *testing.T) {
	t.Parallel()
	own := asyncflow.Quotas{PendingTasks: 10, SubmitsPerSecond: asyncflow.NoLimit}
	defaults := asyncflow.Quotas{PendingTasks: 99, SubmitsPerSecond: 5, TaskTypes: 3,
		ContextBytes: asyncflow.NoLimit}
	assert.Equal(t, asyncflow.Quotas{PendingTasks: 10, TaskTypes: 3}, own.Or(defaults))
	assert.Equal(t, asyncflow.Quotas{},
		asyncflow.Quotas{Concurrency: asyncflow.NoLimit}.Or(asyncflow.Quotas{}))
}

func TestQuotaNames(t *testing.T) {
	t.Parallel()
	// There is a field for each quota, by the same name in documents.
	for i, name := range asyncflow.QuotaNames() {
		q, err := asyncflow.Quotas{}.With(map[asyncflow.QuotaName]float64{name: float64(i + 1)})
		require.NoError(t, err)
		assert.EqualValues(t, i+1, q.Get(name))
		doc, err := json.Marshal(q)
		require.NoError(t, err)
		assert.JSONEq(t, `{"`+string(name)+`":`+strconv.Itoa(i+1)+`}`, string(doc))
		require.NoError(t, q.Validate())
	}
	assert.Len(t, asyncflow.QuotaNames(), 10)
}

func TestChangeQuotas(t *testing.T) {
	t.Parallel()
	old := asyncflow.Quotas{PendingTasks: 10, TaskTypes: 5}
	got, err := old.With(map[asyncflow.QuotaName]float64{"pending_tasks": 0, "concurrency": -1,
		"submits_per_second": 0.5})
	require.NoError(t, err)
	assert.Equal(t, asyncflow.Quotas{TaskTypes: 5, Concurrency: asyncflow.NoLimit,
		SubmitsPerSecond: 0.5}, got)
	for name, c := range map[string]struct {
		quota asyncflow.QuotaName
		value float64
		says  string
	}{
		"below": {"task_types", -2,
			"is -2; it must be a whole number of 1 to 100000, -1 (no limit) or 0 (the operator's " +
				"default)"},
		"above":  {"context_bytes", 64<<20 + 1, "a whole number of 1 to 67108864"},
		"broken": {"pending_tasks", 1.5, "is 1.5; it must be a whole number"},
		"too slow": {"submits_per_second", 0.001,
			"is 0.001; it must be a number of 0.01 to 1000000"},
		"unknown": {"tasks", 1, "is not a quota; they are task_types, pending_tasks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := old.With(map[asyncflow.QuotaName]float64{c.quota: c.value})
			var known *asyncflow.Error
			require.ErrorAs(t, err, &known)
			assert.Equal(t, asyncflow.CodeInvalid, known.Code)
			require.Len(t, known.Fields, 1)
			assert.Equal(t, "quotas."+string(c.quota), known.Fields[0].Field)
			assert.Contains(t, known.Fields[0].Message, c.says)
		})
	}
	require.Error(t, asyncflow.Quotas{TaskTypes: -7}.Validate())
}

func TestParseQuotas(t *testing.T) {
	t.Parallel()
	got, err := asyncflow.ParseQuotas([]string{"pending_tasks=100000", " submits_per_second=0.5",
		"task_types=-1"})
	require.NoError(t, err)
	assert.Equal(t, map[asyncflow.QuotaName]float64{"pending_tasks": 100000,
		"submits_per_second": 0.5,
		"task_types":         -1}, got)
	for _, bad := range [][]string{{"pending_tasks"}, {"pending_tasks=many"}, {"pending_tasks=NaN"},
		{"pending_tasks=Inf"}, {"=1"}, {""}, {"tasks=1"},
		{"task_types=1", "task_types=2"}, {"task_types=0.5"}} {
		t.Run(strings.Join(bad, " "), func(t *testing.T) {
			_, err := asyncflow.ParseQuotas(bad)
			assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), "%q", bad)
			assert.Error(t, err)
		})
	}
}

func TestQuotaExceeded(t *testing.T) {
	t.Parallel()
	err := asyncflow.QuotaExceeded(asyncflow.QuotaPendingTasks, 1000000, 1000003)
	assert.Equal(t, "the tenant's quota pending_tasks is 1000000, and 1000003 are in use",
		err.Detail())
	assert.Equal(t, &asyncflow.QuotaUse{Name: "pending_tasks", Limit: 1000000, Used: 1000003},
		err.Quota)
}
