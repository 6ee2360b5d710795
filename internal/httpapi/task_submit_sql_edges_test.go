package httpapi_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Dependencies are refused by SQL for the same reasons as by the API, with the same words.
func TestSQLSaysOfDependenciesWhatTheAPISays(t *testing.T) {
	b := setupSQL(t)
	b.pipe()
	long := strings.Repeat("x", 256)
	many := strings.Repeat(`{"type":"pipe","key":"k"},`, 101)
	states := map[string]string{"invalid_argument": "22023", "invalid_dependency": "23503"}
	for _, on := range []string{
		`{}`, `[1]`, `[{}]`, `[{"x":1}]`, `[{"task":"pipe.1.1","x":1}]`, `[{"task":""}]`,
		`[{"task":"pipe.0.1"}]`, `[{"task":"pipe.4194304.1"}]`, `[{"task":"pipe.1.1099511627776"}]`,
		`[{"task":"pipe.01.1"}]`, `[{"task":"Pipe"}]`, `[{"task":"pipe.1.99"}]`,
		`[{"task":"pipe.4194303.1099511627775"}]`, `[{"task":"nope.1.1"}]`,
		`[{"task":"pipe.1.1","key":"k"}]`, `[{"type":"pipe"}]`, `[{"key":"k"}]`,
		`[{"type":"pipe","key":""}]`, `[{"type":"P","key":"k"}]`, `[{"type":"p!","key":"k"}]`,
		`[{"type":"` + long[:41] + `","key":"k"}]`, `[{"type":"pipe","key":"` + long + `"}]`,
		`[{"type":"pipe","key":"k","on_failure":"x"}]`,
		`[{"type":"pipe","key":"k","wait_for":"x"}]`,
		`[{"type":"pipe","key":"k","wait_for":5}]`, `[{"type":"pipe","key":"k","wait_for":"-1h"}]`,
		`[{"type":"pipe","key":"k","wait_for":"9000h0.5s"}]`, `[{"type":"nope","key":"k"}]`,
		`[{"type":"pipe","key":"k"},{"type":"","key":"","on_failure":"no","wait_for":"8761h"}]`,
		`[{"type":"pipe","key":"own"}]`, `[` + many[:len(many)-1] + `]`,
	} {
		a := b.call("POST", "/v1/tasks",
			`{"type":"pipe","context":1,"key":"own","depends_on":`+on+`}`)
		_, err := b.bySQL(`'pipe', '1', key => 'own', depends_on => '` + on + `'`)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, on)
		assert.Equal(t, []string{states[a.problem.Code], a.problem.Code, a.problem.Detail,
			a.problem.Errors[0].Field}, []string{pg.Code, pg.Detail, pg.Message, pg.ColumnName}, on)
	}
	for _, c := range []struct{ body, args string }{
		{`"context_from":"dependencies"`, `context_from => 'dependencies'`},
		{`"context_from":"x"`, `context_from => 'x'`},
		{`"depends_on":[],"context_from":"dependencies","run_at":"2999-01-01T00:00:00Z"`,
			`depends_on => '[]', context_from => 'dependencies', run_at => '2999-01-01Z'`},
	} {
		a := b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,`+c.body+`}`)
		_, err := b.bySQL(`'pipe', '1', ` + c.args)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, c.args)
		assert.Equal(t, []string{a.problem.Code, a.problem.Detail}, []string{pg.Detail, pg.Message})
	}
	for _, on := range []string{`[]`,
		`[{"type":"pipe","key":"k","wait_for":"1h2.5m3s4ms5us6ns"}]`,
		`[{"type":"pipe","key":"k","wait_for":"1w2.5d3h4µs"}]`} {
		require.Equal(t, 201, b.call("POST", "/v1/tasks",
			`{"type":"pipe","context":1,"depends_on":`+on+`}`).status)
		_, err := b.bySQL(`'pipe', '1', depends_on => '` + on + `'`)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var same bool
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(DISTINCT wait_for) = 2
			AND count(*) = 4 FROM tenant_acme.edges`).Scan(&same))
		return same
	}, patience, 5e6)
}
