package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

const anyUUID = "0190a6f0-0000-7000-8000-000000000001"

// sqlState returns the SQLSTATE of an error, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// swapRoles makes the work of each of two tenants run under the other's role, as if the first
// fence, which says what schema is named, didn't exist. A second call undoes the first.
func (b *bundle) swapRoles() {
	b.t.Helper()
	b.exec(`
		CREATE TEMP TABLE r AS SELECT slug, role FROM asyncflow.tenants;
		UPDATE asyncflow.tenants SET role = NULL;
		UPDATE asyncflow.tenants t SET role = r.role FROM r WHERE t.slug <> r.slug;
		DROP TABLE r`)
	require.NoError(b.t, b.Catalog.Refresh(b.t.Context()))
}

// calls calls the methods of the store and the committer for a tenant, with arguments by their
// types.
type calls struct {
	b      *bundle
	tenant string
	types  map[reflect.Type]any
}

// withoutSQL are the methods that run no statement of a tenant, or return no error.
var withoutSQL = []string{"Follow", "DropTenantRole", "RoleOf", "TypeOf", "Roles", "Outside",
	"Accepted", "Home", "FollowServer", "NumbersAtHand", "RunAtHand", "QuiesceTenant", "StatsStatements",
	"ChargeSubmits", "AgingTypes", "DBOf", "FollowDBOf", "DBsOfCoordinator",
	// it names no table, but for tenants that are on a worker of Citus
	"Confirm",
	// it reads settings
	"PlanModes",
	// it knows by itself
	"HasUnknownLeases",
	// it logs what fails: ReleaseKey returns that
	"ReleaseKeys",
	// so does it: TakeBackClaims returns that
	"ReleaseClaims",
	// it tells nobody: Extend is the same
	"Prolong",
	// a first delivery needs none: PastDocument, and FirstSent of a later one, read the same tables
	"FirstSent", "ReadPast",
	// a task without a lifetime needs none
	"SetBegun",
	// it counts as Submit does
	"AdmitSpawn",
	// a stage without links needs none: Task, Attempts and SendSignal read the same tables
	"Link",
	// the first attempts of a task need none; of later ones, GrowTree is the same
	"BoundSpawn",
	// Postgres skips the tables of another role with a warning
	"VacuumSet",
	// it runs under the base role
	"ForgetAudit",
	// it reads Citus' tables, and none without it
	"Placements",
	// the operator's methods, on the schema asyncflow
	"BeginDrop", "CreateTenant", "DeleteTenant", "DropStep", "NoteUnread", "PatchTenant",
	"RestoreTenant", "Tenant",
	"TenantPage", "TokenPage", "RevokeToken", "RevokedTokens"}

// special are the arguments after the tenant where their types are not enough.
var special = map[string][]any{
	"Endpoint": {anyUUID}, "DeleteEndpoint": {anyUUID}, "Operation": {anyUUID},
	"StopOperation": {anyUUID}, "EndpointHistory": {anyUUID}, "EndpointCounts": {[]string{anyUUID}},
	"RecordNotice": {anyUUID, asyncflow.AlertFiring, asyncflow.TaskID{Type: "pipe", Number: 1}},
	"SealRoll":     {0}, "LeaseLimited": {0}, "AllotNumbers": {30_000}, "AllotRun": {30_000},
	"SetHealth": {anyUUID}, "RestFollowUp": {int64(1)},
	"ChangeEndpoint": {anyUUID}, "EnableEndpoint": {anyUUID}, "Reseal": {""},
	"GrantSubmit": {"pg_monitor"}, "RevokeSubmit": {"pg_monitor"},
	"GroupFailures":  {store.FailureFilter{Until: time.Now(), Limit: 10}},
	"Workers":        {store.WorkerFilter{Since: time.Now().Add(-time.Minute), Limit: 10}},
	"LeaseForClaims": {"second"}, "StageLoad": {"pipe", "first"},
	"GrowTree": {asyncflow.Options{Spawned: &asyncflow.Spawned{
		Part: &asyncflow.Part{Awaited: asyncflow.Awaited{Type: 1, ID: 1, Seq: 1}}}}},
	"ParkHalted": {
		[]asyncflow.Lease{{Options: asyncflow.Options{Child: &asyncflow.Child{Parent: 1}}}}},
}

func newCalls(b *bundle, tenant string, t *store.Type, l asyncflow.Lease) *calls {
	c := &calls{b: b, tenant: tenant, types: map[reflect.Type]any{}}
	for _, arg := range []any{t, t.Set(), store.Roll{MaxTasks: store.OwnSetTasks}, l, &l, l.ID, 1,
		time.Now(), time.Second, []string{"pipe"}, changed(),
		store.Filter{Type: "pipe", Status: asyncflow.StatusPending, Limit: 10,
			EndedSince: time.Now().Add(-time.Hour)},
		store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}},
		newTask(`1`),
		[]asyncflow.NewTask{newTask(`1`), withKey("known", `1`)},
		asyncflow.Endpoint{ID: anyUUID, Type: "pipe", Stage: "first", URL: "https://example.com/",
			Weight: 1},
		store.Alerts{Endpoint: asyncflow.Endpoint{ID: anyUUID, URL: "https://example.com/",
			Weight: 1}},
		asyncflow.Patch{Priority: asyncflow.Priority{}, RunAt: time.Now().Add(time.Hour)},
		store.Redrive{},
		[]asyncflow.AlertReading{{Alert: "backlog", Subject: "pipe", Value: 2, Limit: 1}},
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone}, store.Progress{Percent: 1},
		dispatcher.ClaimRequest{Type: "pipe", Stage: "second", Claimer: "w", Max: 1},
		asyncflow.Schedule{Name: "minutely", Type: "pipe", Context: json.RawMessage(`1`),
			Every: asyncflow.NewDuration(time.Minute)},
		store.DueOperation{Tenant: tenant, Type: "pipe", ID: anyUUID, At: time.Now()},
		store.AuditFilter{Tenant: tenant, Limit: 1},
		denied(tenant),
		[]*store.AuditedCall{denied(tenant)},
		asyncflow.Settlement{Lease: l, Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeDone},
			Verdict: asyncflow.Verdict{Kind: asyncflow.Succeed}},
		[]asyncflow.TaskID{l.ID}, newWrites(t, l), newWrites(t, l)[0].New,
		newWrites(t, l)[0].Extended, newWrites(t, l)[0].Settled,
	} {
		c.types[reflect.TypeOf(arg)] = arg
	}
	return c
}

// newWrites returns what Commit may write of a type, some of each kind.
func newWrites(t *store.Type, l asyncflow.Lease) []*store.Writes {
	now := time.Now()
	return []*store.Writes{{Type: t,
		New: []*store.Insertion{
			{ID: asyncflow.NewTaskID(t.Name, t.End, 1<<30), Created: now,
				Context: json.RawMessage(`1`), Verdict: asyncflow.Verdict{Kind: asyncflow.Retry,
					Stage: "first", Attempt: 1, OrderTime: now},
				Key: &store.Key{Name: "inserted", Expires: now.Add(time.Hour)}},
		},
		Extended: []*store.Extension{{ID: l.ID, Seq: l.Seq, Until: now.Add(time.Hour)}},
		Settled: []*store.Ending{{Settlement: &asyncflow.Settlement{Lease: l,
			Outcome: asyncflow.Outcome{
				Kind: asyncflow.OutcomeDone,
			}, Verdict: asyncflow.Verdict{Kind: asyncflow.Succeed}}}},
	}}
}

func denied(tenant string) *store.AuditedCall {
	return store.NewAuditedCall(tenant, asyncflow.AuditEntry{
		Origin: asyncflow.AuditFromAPI, At: time.Now(),
		Tenant: tenant, Action: "x.y", Outcome: asyncflow.AuditDenied})
}

func changed() asyncflow.TaskType {
	t := twoStages()
	t.ScheduleLimit = 9
	return t
}

// ofATenant reports whether a method is about a tenant: it takes the tenant's name, or one of
// its types, table sets, operations or audit entries.
func ofATenant(m reflect.Method) bool {
	for i := 1; i < m.Type.NumIn(); i++ {
		in := m.Type.In(i)
		switch {
		case in == reflect.TypeFor[*store.Type](), in == reflect.TypeFor[*store.TableSet](),
			in == reflect.TypeFor[store.DueOperation](),
			in == reflect.TypeFor[[]*store.Writes]():
			return true
		case in == reflect.TypeFor[store.AuditFilter](),
			in == reflect.TypeFor[*store.AuditedCall](),
			in == reflect.TypeFor[[]*store.AuditedCall]():
			return true
		case i <= 2 && in.Kind() == reflect.String:
			return true
		}
	}
	return false
}

// each calls every method that is about a tenant, and check with its error.
func (c *calls) each(check func(name string, err error)) int {
	n, idle := 0, []string{"JoinSharedSet"} // they do nothing, as far as they can know
	if c.b.own {
		idle = []string{"OwnSet", "DeleteRows"}
	}
	for _, v := range []reflect.Value{reflect.ValueOf(c.b.Committer), reflect.ValueOf(c.b.Store)} {
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			if !ofATenant(m) || slices.Contains(withoutSQL, m.Name) ||
				slices.Contains(idle, m.Name) {
				continue
			}
			n++
			check(m.Name, c.call(m, v.Method(i)))
		}
	}
	return n
}

// call calls one method and returns its error, or the error that it passed to a callback.
func (c *calls) call(m reflect.Method, f reflect.Value) error {
	told := make(chan []reflect.Value, 10)
	rest := special[m.Name]
	tenantGiven := false
	var in []reflect.Value
	for i := range f.Type().NumIn() {
		t := f.Type().In(i)
		switch arg, ok := c.types[t]; {
		case t == reflect.TypeFor[context.Context]():
			in = append(in, reflect.ValueOf(c.b.t.Context()))
		case t.Kind() == reflect.Func:
			in = append(in, reflect.MakeFunc(t, func(args []reflect.Value) []reflect.Value {
				told <- args
				return zeros(t)
			}))
		case t == reflect.TypeFor[string]() && !tenantGiven:
			tenantGiven = true
			in = append(in, reflect.ValueOf(c.tenant))
		case len(rest) > 0 && reflect.TypeOf(rest[0]).ConvertibleTo(t) &&
			t != reflect.TypeFor[*store.Type]():
			in = append(in, reflect.ValueOf(rest[0]).Convert(t))
			rest = rest[1:]
		case ok:
			in = append(in, reflect.ValueOf(arg))
			tenantGiven = tenantGiven || t == reflect.TypeFor[*store.Type]()
		case t == reflect.TypeFor[string]():
			in = append(in, reflect.ValueOf("pipe"))
		default:
			in = append(in, reflect.Zero(t))
		}
	}
	out := f.Call(in)
	if len(out) == 0 {
		out = <-told
	}
	return errorIn(out)
}

func zeros(f reflect.Type) (all []reflect.Value) {
	for i := range f.NumOut() {
		all = append(all, reflect.Zero(f.Out(i)))
	}
	return all
}

// errorIn returns the error among some values, or inside the first of them.
func errorIn(values []reflect.Value) error {
	for _, v := range values {
		switch x := v.Interface().(type) {
		case error:
			return x
		case store.Settled:
			return x.Err
		case store.Submitted:
			if x.Err != nil {
				return x.Err
			}
		case []store.Submitted:
			return x[0].Err
		case *store.FollowUp:
			_, err := x.Commit()
			return err
		}
	}
	return nil
}

// If the store names the schema of one tenant under the role of another, Postgres refuses each
// kind of call.
func TestSecondFence(t *testing.T) { eachSetOn(t, setupTwo, secondFence) }

func secondFence(t *testing.T, b *bundle) {
	needsRoles(t)
	for _, name := range []string{tenant, "other"} {
		spec := twoStages()
		spec.Flow = &asyncflow.Flow{Ordered: true}
		spec.Stages[1].Mode = asyncflow.ModeClaim
		spec.ContextRetention = asyncflow.NewDuration(time.Hour)
		b.putOf(name, spec)
		for _, r := range b.Submit(t.Context(), name,
			[]asyncflow.NewTask{newTask(`1`), newTask(`2`), newTask(`3`)}) {
			require.NoError(t, r.Err)
		}
	}
	other, err := b.Catalog.Type("other", "pipe")
	require.NoError(t, err)
	l := b.lease(other, 1)[0]
	dump := func() (text string) {
		if pgtest.OnCitus() {
			return b.contents("other") + b.contents(tenant)
		}
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT string_agg(table_to_xml(c.oid, true, false, '')::text, '' ORDER BY c.oid)
			FROM pg_class c
			WHERE relnamespace IN ('tenant_other'::regnamespace, 'tenant_acme'::regnamespace)
			  AND relkind = 'r'`).Scan(&text))
		return text
	}
	before := dump()
	b.swapRoles()
	n := newCalls(b, "other", other, l).each(func(name string, err error) {
		assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err), "%s: %v", name, err)
	})
	assert.Greater(t, n, 70, "methods were called")
	keyed := newTask(`1`)
	keyed.Options.Key = "k"
	assert.Equal(t, pgerrcode.InsufficientPrivilege,
		sqlState(b.Submit(t.Context(), "other", []asyncflow.NewTask{keyed})[0].Err))
	assert.Error(t, b.swappedOpen(), "a node doesn't start like that")
	assert.Equal(t, before, dump(), "nothing was changed")

	b.swapRoles()
	newCalls(b, "other", other, l).each(func(name string, err error) {
		assert.NotEqual(t, pgerrcode.InsufficientPrivilege, sqlState(err),
			"%s: with its own role: %v", name, err)
	})
}

// swappedOpen opens another node.
func (b *bundle) swappedOpen() error {
	s, err := store.Open(b.t.Context(), store.Config{URL: b.url, Node: "late"})
	if err == nil {
		s.Close()
	}
	return err
}

// What each role may do, asked of Postgres directly.
func TestRolesMayLittle(t *testing.T) {
	needsRoles(t)
	b := setupTwo(t)
	for _, name := range []string{tenant, "other"} {
		_, _, err := b.PutTaskType(t.Context(), name, twoStages())
		require.NoError(t, err)
	}
	acme, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	other, err := b.RoleOf(t.Context(), "other")
	require.NoError(t, err)
	refused := func(role, sql string) {
		t.Helper()
		_, err := b.as(role, sql)
		assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err), "%s: %s: %v", role, sql,
			err)
	}
	for _, sql := range []string{
		`SELECT FROM tenant_other.task_types`, `SELECT FROM tenant_other.task_1`,
		`DELETE FROM tenant_other.ready_1`, `SELECT expires_at FROM tenant_other.idempotency_keys`,
		`SELECT FROM asyncflow.tenants`, `UPDATE asyncflow.tenants SET version = version + 1`,
		`SELECT FROM asyncflow.nodes`, `SELECT FROM asyncflow.fence`,
		`CREATE TABLE tenant_other.x (i int)`, `CREATE TABLE asyncflow.x (i int)`,
		`CREATE TABLE public.x (i int)`, `CREATE SCHEMA x`, `CREATE ROLE x`, `SET ROLE ` + other,
		`SET ROLE ` + b.BaseRole(),
		`DROP SCHEMA tenant_other CASCADE`, `ALTER TABLE tenant_other.tallies RENAME TO x`,
		`GRANT USAGE ON SCHEMA tenant_other TO public`,
		`SELECT 'tenant_other.tallies'::regclass`,
		`DELETE FROM tenant_acme.audit`, `TRUNCATE tenant_acme.audit`,
		`SELECT FROM tenant_other.audit`,
		`SELECT FROM asyncflow.audit`,
	} {
		refused(acme, sql)
	}
	for _, sql := range []string{
		`SELECT FROM tenant_other.task_types`, `SELECT context FROM tenant_acme.task_1`,
		`SELECT key FROM tenant_acme.idempotency_keys`, `SELECT filter FROM tenant_acme.operations`,
		`SELECT spec FROM tenant_acme.schedules`, `DELETE FROM tenant_acme.tallies`,
		`SELECT outbound FROM tenant_acme.endpoints`,
		`SELECT sealed FROM tenant_acme.endpoint_secrets`,
		`CREATE TABLE tenant_acme.x (i int)`,
		`SELECT subject FROM tenant_acme.audit`, `TRUNCATE tenant_acme.audit`,
		`TRUNCATE asyncflow.audit`,
		`INSERT INTO tenant_acme.audit (id, at, origin, action, outcome)
			VALUES (gen_random_uuid(), now(), 'api', 'a.b', 'done')`,
		`UPDATE asyncflow.fence SET prefix = prefix`, `DELETE FROM asyncflow.schema_versions`,
		`CREATE TABLE asyncflow.x (i int)`,
	} {
		refused(b.BaseRole(), sql)
	}
	var wrong []string
	rows, err := b.db.Query(t.Context(),
		`SELECT a.rolname || ' ' || b.rolname FROM pg_roles a, pg_roles b
		WHERE a.rolname = ANY ($1) AND (a.rolcanlogin AND NOT $2 OR a.rolsuper OR a.rolcreaterole
		    OR a.rolcreatedb OR a.oid <> b.oid AND pg_has_role(a.oid, b.oid, 'MEMBER')
		    AND NOT ($2 AND b.rolname = $3 || '-logins'))`,
		[]string{acme, other, b.BaseRole()}, pgtest.OnCitus(), b.BaseRole())
	require.NoError(t, err)
	wrong, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Empty(t, wrong, "a role may log in, or be another")
	var strangers []string
	rows, err = b.db.Query(t.Context(),
		`SELECT relname FROM pg_class
			WHERE relnamespace = 'tenant_acme'::regnamespace AND pg_get_userbyid(relowner) <> $1`, acme)
	require.NoError(t, err)
	strangers, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Empty(t, strangers, "everything is the tenant's own, also newer tables")
}

// as runs a statement under a role, and rolls it back.
func (b *bundle) as(role, sql string) (tag pgconn.CommandTag, err error) {
	tx, err := b.db.Begin(b.t.Context())
	require.NoError(b.t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(b.t.Context(), `SET LOCAL SESSION AUTHORIZATION `+pgx.Identifier{role}.Sanitize())
	require.NoError(b.t, err)
	return tx.Exec(b.t.Context(), sql)
}

// A statement on a tenant's table outside of and hot is also refused: a connection's own role
// is the base role.
func TestForgottenRole(t *testing.T) {
	needsRoles(t)
	b := setup(t)
	b.put(twoStages())
	_, err := b.Base().Exec(t.Context(), `SELECT context FROM tenant_acme.task_1`)
	assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err))
	var role string
	require.NoError(t, b.Base().QueryRow(t.Context(), `SELECT current_user::text`).Scan(&role))
	assert.Equal(t, b.BaseRole(), role)
	assert.True(t, strings.HasPrefix(role, "asyncflow_"), role)
}
