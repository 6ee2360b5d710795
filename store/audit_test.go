package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// auditedCall returns a context with an audited call, and the call.
func (b *bundle) auditedCall(action string) (context.Context, *store.AuditedCall) {
	a := store.NewAuditedCall(tenant, asyncflow.AuditEntry{
		Origin: asyncflow.AuditFromAPI, Tenant: tenant,
		Subject: "ada", Action: action, Status: 200})
	a.StatusNew = 201
	return store.WithAuditedCall(b.t.Context(), a), a
}

func (b *bundle) audit(tenant string) []asyncflow.AuditEntry {
	b.t.Helper()
	all, err := b.Audit(b.t.Context(), store.AuditFilter{Tenant: tenant, Limit: 1000})
	require.NoError(b.t, err)
	return all
}

// A change and its entry are written both or not at all.
func TestActIsOneWithItsChange(t *testing.T) {
	b := setup(t)
	ctx, a := b.auditedCall("task_type.put")
	_, created, err := b.PutTaskType(ctx, tenant, twoStages())
	require.NoError(t, err)
	require.True(t, created && a.Written())
	require.NoError(t, b.Record(ctx, a), "again changes nothing")
	all := b.audit(tenant)
	require.Len(t, all, 1)
	assert.Equal(t,
		[]any{"ada", "task_type.put", asyncflow.AuditDone, 201,
			map[string]any{"version": json.Number("1")}},
		[]any{all[0].Subject, all[0].Action, all[0].Outcome, all[0].Status, all[0].Detail})
	assert.WithinDuration(t, time.Now(), all[0].At, time.Minute)

	// A failed change leaves no entry of a change.
	ctx, a = b.auditedCall("task_type.delete")
	require.Error(t, b.DeleteTaskType(ctx, tenant, "nope", false))
	require.False(t, a.Written())
	ctx, a = b.auditedCall("task_type.put")
	_, _, err = b.CheckTaskType(ctx, tenant, twoStages())
	require.NoError(t, err)
	require.False(t, a.Written(), "it was a dry run")
	require.Empty(t, a.Detail)
	require.Len(t, b.audit(tenant), 1)

	// No change is made without its entry.
	_, err = b.db.Exec(t.Context(),
		`ALTER TABLE tenant_acme.audit ADD CONSTRAINT full_disk CHECK (action <> 'task_type.delete')`)
	require.NoError(t, err)
	ctx, a = b.auditedCall("task_type.delete")
	require.Error(t, b.DeleteTaskType(ctx, tenant, "pipe", false))
	require.False(t, a.Written())
	_, err = b.TaskType(t.Context(), tenant, "pipe")
	require.NoError(t, err, "it is still there")
}

// An operator's change to a tenant is in the audit that belongs to no tenant, and in the same
// transaction as the change.
func TestActOfAnOperator(t *testing.T) {
	b := setup(t)
	a := store.NewAuditedCall("", asyncflow.AuditEntry{
		Origin: asyncflow.AuditFromAPI, Subject: "root",
		Action: "task_type.put", Status: 200})
	ctx := store.WithAuditedCall(t.Context(), a)
	_, _, err := b.PutTaskType(ctx, tenant, twoStages())
	require.NoError(t, err)
	require.True(t, a.Written())
	require.Empty(t, b.audit(tenant))
	require.Len(t, b.audit(""), 1)
	a = store.NewAuditedCall("", asyncflow.AuditEntry{
		Origin: asyncflow.AuditFromAPI, Subject: "root",
		Action: "schedule.delete", Status: 204})
	ctx = store.WithAuditedCall(t.Context(), a)
	_, _, err = b.PutSchedule(ctx, tenant, asyncflow.Schedule{Name: "minutely", Type: "pipe",
		Context: json.RawMessage(`1`), Every: asyncflow.NewDuration(time.Minute)})
	require.NoError(t, err)
	require.True(t, a.Written())
	require.Len(t, b.audit(""), 2)
}

// A call with a lost answer leaves one entry, not two.
func TestRecordAfterALostAnswer(t *testing.T) {
	b := setup(t)
	ctx, a := b.auditedCall("task_type.put")
	_, _, err := b.PutTaskType(ctx, tenant, twoStages())
	require.NoError(t, err)
	// as if the answer to its commit was lost
	again := *store.NewAuditedCall(a.Schema, a.AuditEntry)
	again.ID = a.ID
	again.Outcome, again.Status = asyncflow.AuditFailed, 503
	require.NoError(t, b.Record(ctx, &again))
	require.NoError(t, b.RecordAll(ctx, []*store.AuditedCall{&again}))
	all := b.audit(tenant)
	require.Len(t, all, 1)
	assert.Equal(t, 201, all[0].Status)
}

// Nobody can change the audit, or delete its last day.
func TestAuditIsAppendOnly(t *testing.T) {
	b := setup(t)
	for i, age := range []time.Duration{0, 23 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour} {
		for _, schema := range []string{"tenant_acme", "asyncflow"} {
			_, err := b.db.Exec(t.Context(),
				`INSERT INTO `+schema+`.audit (id, at, origin, action, outcome, subject)
					VALUES ($1, $2, 'api', 'a.b', 'done', $3)`,
				uuid.NewString(), time.Now().Add(-age), fmt.Sprint(i))
			require.NoError(t, err)
		}
	}
	for _, schema := range []string{"tenant_acme", "asyncflow"} {
		for _, sql := range []string{`UPDATE {}.audit SET subject = 'nobody'`,
			`UPDATE {}.audit SET calls = 5 WHERE subject = '1'`} {
			tag, err := b.db.Exec(t.Context(), strings.ReplaceAll(sql, "{}", schema))
			require.NoError(t, err)
			require.Zero(t, tag.RowsAffected())
		}
	}
	n, err := b.DryRunForgetAudit(t.Context(), tenant, 365*24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	for _, tenant := range []string{tenant, ""} {
		n, err = b.ForgetAudit(t.Context(), tenant, 365*24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = b.ForgetAudit(t.Context(), tenant, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 1, n, "a day is always kept")
	}
	for _, schema := range []string{"tenant_acme", "asyncflow"} {
		tag, err := b.db.Exec(t.Context(), `DELETE FROM `+schema+`.audit`)
		require.NoError(t, err)
		require.Zero(t, tag.RowsAffected())
	}
	for _, tenant := range []string{tenant, ""} {
		all := b.audit(tenant)
		require.Len(t, all, 2)
		assert.Equal(t, []string{"0", "1"}, []string{all[0].Subject, all[1].Subject})
		assert.EqualValues(t, 1, all[0].Calls)
	}
}

// A role that may only insert and select can do everything that requests need.
func TestAuditNeedsLittle(t *testing.T) {
	b := setup(t)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	role := "audit_" + uuid.NewString()[:8]
	_, err = tx.Exec(t.Context(),
		`CREATE ROLE "`+role+`"; GRANT USAGE ON SCHEMA tenant_acme TO "`+role+`"; GRANT INSERT,
			SELECT ON tenant_acme.audit TO "`+role+`"; SET LOCAL ROLE "`+role+`"`)
	require.NoError(t, err)
	require.NoError(t, store.InsertAudit(t.Context(), tx, tenant,
		asyncflow.AuditEntry{ID: uuid.NewString(), At: time.Now(), Origin: asyncflow.AuditFromAPI,
			Action: "a.b", Outcome: asyncflow.AuditDone, Calls: 1}))
}

func TestAuditList(t *testing.T) {
	b := setupTwo(t)
	base := b.Clock.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i := range 25 {
		a := store.NewAuditedCall(tenant, asyncflow.AuditEntry{Origin: asyncflow.AuditFromAPI,
			At: base.Add(time.Duration(i/2) * time.Second), Subject: []string{"ada", "bob"}[i%2],
			Action: []string{"x.y", "x.z", "x.w"}[i%3], Outcome: asyncflow.AuditRefused,
			Status: 409,
			Code:   "conflict",
			Detail: map[string]any{"n": i}, Claimed: asyncflow.AuditClaim{Subject: "eve"},
			Calls: int64(i + 1), LastAt: base})
		require.NoError(t, b.Record(t.Context(), a))
	}
	require.Empty(t, b.audit("other"))
	require.Empty(t, b.audit(""))
	f := store.AuditFilter{Tenant: tenant, Limit: 4}
	var pages [][]asyncflow.AuditEntry
	seen := map[string]bool{}
	for {
		page, err := b.Audit(t.Context(), f)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		pages = append(pages, page)
		for _, e := range page {
			require.False(t, seen[e.ID])
			seen[e.ID] = true
		}
		last := page[len(page)-1]
		f.Before = store.AuditPlace{At: last.At, ID: last.ID}
	}
	require.Len(t, seen, 25)
	require.Len(t, pages, 7)
	first := pages[0][0]
	assert.Equal(t, []any{"x.y", 409, "conflict", "eve", int64(25), json.Number("24")},
		[]any{first.Action, first.Status, first.Code, first.Claimed.Subject, first.Calls,
			first.Detail["n"]})
	assert.True(t, first.LastAt.Equal(base))
	count := func(f store.AuditFilter) int {
		f.Tenant, f.Limit = tenant, 100
		all, err := b.Audit(t.Context(), f)
		require.NoError(t, err)
		return len(all)
	}
	assert.Equal(t, 12, count(store.AuditFilter{Subject: "bob"}))
	assert.Equal(t, 4, count(store.AuditFilter{Subject: "bob", Action: "x.z"}))
	assert.Equal(t, 0, count(store.AuditFilter{Outcome: asyncflow.AuditDone}))
	assert.Equal(t, 2,
		count(store.AuditFilter{Since: base.Add(time.Second), Until: base.Add(2 * time.Second),
			Outcome: asyncflow.AuditRefused}))
}

// Entries of the command line bear the time of the database; in a database without an audit none is
// written.
func TestRecordByHand(t *testing.T) {
	b := setup(t)
	e := asyncflow.AuditEntry{Origin: asyncflow.AuditFromCLI, Subject: "ops@host",
		Action: "schema.migrate", Outcome: asyncflow.AuditDone}
	require.NoError(t, store.RecordByHand(t.Context(), b.url, e))
	all := b.audit("")
	require.Len(t, all, 1)
	assert.Equal(t, []any{"ops@host", asyncflow.AuditFromCLI, 0},
		[]any{all[0].Subject, all[0].Origin, all[0].Status})
	_, err := b.db.Exec(t.Context(), `DROP TABLE asyncflow.audit`)
	require.NoError(t, err)
	require.NoError(t, store.RecordByHand(t.Context(), b.url, e))
}

// Denied calls of a tenant that is gone don't delay the others.
func TestRecordAllWithoutTheTenant(t *testing.T) {
	b := setup(t)
	entry := asyncflow.AuditEntry{Origin: asyncflow.AuditFromAPI, At: b.Clock.Now(), Action: "x.y",
		Outcome: asyncflow.AuditDenied}
	require.NoError(t, b.RecordAll(t.Context(),
		[]*store.AuditedCall{
			store.NewAuditedCall("gone", entry),
			store.NewAuditedCall(tenant, entry),
			store.NewAuditedCall("", entry),
		}))
	assert.Len(t, b.audit(tenant), 1)
	assert.Len(t, b.audit(""), 2)
}
