package httpapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// setupSQL is setup with a running store, which writes the limits for submits by SQL into the
// database.
func setupSQL(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	b := setupOn(t, func(c *store.Config) { c.MaxContext = maxContext }, func(*httpapi.Config) {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	b.limited(`context_bytes = 1000`)
	return b
}

// limited waits until the limits of submits by SQL reach a value.
func (b *bundle) limited(how string) {
	b.t.Helper()
	require.Eventually(b.t, func() (so bool) {
		require.NoError(b.t, b.db.QueryRow(b.t.Context(),
			`SELECT `+how+` FROM tenant_acme.submit_limits`).Scan(&so))
		return so
	}, patience, 20*time.Millisecond, how)
}

// bySQL submits a task by SQL.
func (b *bundle) bySQL(args string) (id string, err error) {
	err = b.db.QueryRow(b.t.Context(), `SELECT tenant_acme.submit_task(`+args+`)`).Scan(&id)
	return id, err
}

// Submits by SQL are refused for the same reasons as by the API, with the same words.
func TestSQLSaysWhatTheAPISays(t *testing.T) {
	b := setupSQL(t)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"only"}],"retention":"100h"}`).status)
	require.Equal(t, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"key":"used"}`).status)
	long, umlauts := strings.Repeat("a", 41), strings.Repeat("ä", 128)
	deep := strings.Repeat(`{"a":[`, 65) + strings.Repeat("]}", 65)
	quoted := `"` + strings.Repeat(`[\"{`, 99) + `"` // no depth
	fits := `"` + strings.Repeat("x", maxContext-2) + `"`
	for name, c := range map[string]struct{ body, args, state string }{
		"no type":         {`"context":1`, `NULL, '1'`, "22023"},
		"an empty type":   {`"type":"","context":1`, `'', '1'`, "22023"},
		"an unknown type": {`"type":"nope","context":1`, `'nope', '1'`, "42704"},
		"over-long type": {`"type":"` + long + `","context":1`, `'` + long + `', '1'`,
			"22023"},
		"type in capitals":     {`"type":"Pipe","context":1`, `'Pipe', '1'`, "22023"},
		"type with an umlaut":  {`"type":"päpe","context":1`, `'päpe', '1'`, "22023"},
		"type with a line end": {`"type":"pipe\n","context":1`, `E'pipe\n', '1'`, "22023"},
		"no context":           {`"type":"pipe"`, `'pipe', NULL`, "22023"},
		"context over the limit": {`"type":"pipe","context":"` + umlauts + fits[1:], `'pipe', '"` +
			umlauts + fits[1:] + `'`, "54000"},
		"one byte over": {`"type":"pipe","context":` + fits[:9] + fits[8:], `'pipe', '` +
			fits[:9] + fits[8:] + `'`, "54000"},
		"context of the limit": {`"type":"pipe","context":` + fits, `'pipe', '` + fits + `'`, ""},
		"context too deep": {`"type":"pipe","context":` + deep, `'pipe', '` + deep + `'`,
			"22023"},
		"context just so deep": {`"type":"pipe","context":` + deep[6:len(deep)-2], `'pipe', '` +
			deep[6:len(deep)-2] + `'`, ""},
		"brackets in a string": {`"type":"pipe","context":` + quoted, `'pipe', '` + quoted + `'`,
			""},
		"negative priority": {`"type":"pipe","context":1,"priority":-1`,
			`'pipe', '1', priority => -1`, "22023"},
		"priority over a year": {`"type":"pipe","context":1,"priority":31536001`,
			`'pipe', '1', priority => 31536001`, "22023"},
		"run_at over a year": {`"type":"pipe","context":1,"run_at":"2999-01-01T00:00:00Z"`,
			`'pipe', '1', run_at => '2999-01-01Z'`, "22023"},
		"key too long": {`"type":"pipe","context":1,"key":"` + umlauts + `"`,
			`'pipe', '1', key => '` + umlauts + `'`, "22023"},
		"flow key too long": {`"type":"pipe","context":1,"flow_key":"` + umlauts + `"`,
			`'pipe', '1', flow_key => '` + umlauts + `'`, "22023"},
		"an empty key": {`"type":"pipe","context":1,"key":""`, `'pipe', '1', key => ''`, "22023"},
		"an empty flow key": {`"type":"pipe","context":1,"flow_key":""`,
			`'pipe', '1', flow_key => ''`, "22023"},
		"an empty key's window": {`"type":"pipe","context":1,"key":"","key_window":"1h"`,
			`'pipe', '1', key => '', key_window => '1h'`, "22023"},
		"a window without a key": {`"type":"pipe","context":1,"key_window":"1h"`,
			`'pipe', '1', key_window => '1h'`, "22023"},
		"a negative window": {`"type":"pipe","context":1,"key":"k","key_window":"-1m1.5s"`,
			`'pipe', '1', key => 'k', key_window => '-61.5s'`, "22023"},
		"a window too long": {`"type":"pipe","context":1,"key":"k","key_window":"4321h"`,
			`'pipe', '1', key => 'k', key_window => '4321h'`, "22023"},
		"longer than the tasks": {`"type":"pipe","context":1,"key":"k","key_window":"100h0m1s"`,
			`'pipe', '1', key => 'k', key_window => '100h 1s'`, "22023"},
		"a key in use": {`"type":"pipe","context":2,"key":"used"`, `'pipe', '2', key => 'used'`,
			"23505"},
		"everything at once": {`"type":"P","priority":-1,"key":"` + umlauts + `","flow_key":"` +
			umlauts +
			`"`,
			`'P', NULL, priority => -1, key => '` + umlauts + `', flow_key => '` + umlauts + `'`,
			"22023"},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.call("POST", "/v1/tasks", `{`+c.body+`}`)
			_, err := b.bySQL(c.args)
			if c.state == "" {
				require.Equal(t, 201, a.status, "%s", a.body)
				require.NoError(t, err)
				return
			}
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			assert.Equal(t, c.state, pg.Code)
			assert.Equal(t, []string{a.problem.Code, a.problem.Detail, a.problem.Errors[0].Field},
				[]string{pg.Detail, pg.Message, pg.ColumnName})
			assert.Regexp(t, `^PL/pgSQL function [a-z_.]*submit_task\(.*\) line \d+ at RAISE$`,
				pg.Where, "nobody is shown what is inside")
		})
	}
	var n int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.task_pipe_1`).Scan(&n))
	assert.Equal(t, 7, n, "only those three, in both ways")
}

// Quotas and a suspension apply to SQL too, once a node writes them into the database.
func TestSQLHasTheTenantsLimits(t *testing.T) {
	b := setupSQL(t)
	b.pipe()
	refused := func(state, code, message string) {
		t.Helper()
		_, err := b.bySQL(`'pipe', '"12345678"'`)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		assert.Equal(t, []string{state, code, message}, []string{pg.Code, pg.Detail, pg.Message})
		assert.NotContains(t, pg.Where, "\n")
	}
	b.quota(`{"pending_tasks":2,"context_bytes":10}`)
	b.limited(`context_bytes = 10 AND pending_tasks = 2`)
	first, err := b.bySQL(`'pipe', '"12345678"', key => 'k'`)
	require.NoError(t, err)
	_, err = b.bySQL(`'pipe', '"12345678"', run_at => now() + interval '1h'`)
	require.NoError(t, err)
	refused("53400", "quota_exceeded", "the tenant's quota pending_tasks is 2, and 2 are in use")
	again, err := b.bySQL(`'pipe', '"12345678"', key => 'k'`)
	require.NoError(t, err, "it is there already")
	assert.Equal(t, first, again)
	assert.Equal(t, 403, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`).status,
		"they count for all")
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+first+"/cancel", "").status)
	_, err = b.bySQL(`'pipe', '"12345678"'`)
	require.NoError(t, err, "there is room again")

	b.quota(`{"pending_tasks":0,"context_bytes":9}`)
	b.limited(`context_bytes = 9 AND pending_tasks = 0`)
	refused("54000", "too_large", "context is 10 bytes; the limit is 9")
	suspend := true
	_, err = b.store.PatchTenant(t.Context(), "acme",
		store.TenantPatch{Suspend: &suspend, Reason: "unpaid"})
	require.NoError(t, err)
	b.limited(`refusal IS NOT NULL`)
	refused("55000", "tenant_suspended", "the tenant acme is suspended: unpaid")
	_, err = b.store.DeleteTenant(t.Context(), "acme", nil)
	require.NoError(t, err)
	b.limited(`refusal LIKE '%deleted'`)
	refused("55000", "tenant_suspended", "the tenant acme was deleted")
	_, err = b.store.RestoreTenant(t.Context(), "acme")
	require.NoError(t, err)
	suspend = false
	_, err = b.store.PatchTenant(t.Context(), "acme", store.TenantPatch{Suspend: &suspend})
	require.NoError(t, err)
	b.limited(`refusal IS NULL`)
	_, err = b.bySQL(`'pipe', '1'`)
	require.NoError(t, err)
}
