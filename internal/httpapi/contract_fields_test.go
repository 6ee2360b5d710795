package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// Each quota can be set in each way, and is read back from everywhere: as text for the CLI and
// the operator's defaults, when the tenant is created and when it is changed.
func TestEveryQuotaInEveryWay(t *testing.T) {
	b := setup(t)
	admin, n := b.adminToken(), 0
	ways := map[string]func(t *testing.T, name asyncflow.QuotaName, value int64) string{
		"created": func(t *testing.T, name asyncflow.QuotaName, value int64) string {
			slug := fmt.Sprint("t", n)
			read[api.Tenant](b, 201, b.callAs(admin, "POST", "/v1/tenants",
				fmt.Sprintf(`{"slug":%q,"quotas":{%q:%d}}`, slug, name, value)))
			return slug
		},
		"changed": func(t *testing.T, name asyncflow.QuotaName, value int64) string {
			read[api.Tenant](b, 200, b.callAs(admin, "PATCH", "/v1/tenants/acme",
				fmt.Sprintf(`{"quotas":{%q:%d}}`, name, value)))
			return "acme"
		},
		"by text": func(t *testing.T, name asyncflow.QuotaName, value int64) string {
			changes, err := asyncflow.ParseQuotas([]string{fmt.Sprint(name, "=", value)})
			require.NoError(t, err)
			_, err = b.store.PatchTenant(t.Context(), "acme", store.TenantPatch{Quotas: changes})
			require.NoError(t, err)
			return "acme"
		},
	}
	for _, schema := range []string{"Quotas", "QuotaChanges"} {
		names := schemaFields[asyncflow.QuotaName](t, schema)
		assert.ElementsMatch(t, asyncflow.QuotaNames(), names, schema)
	}
	for _, name := range asyncflow.QuotaNames() {
		for way, set := range ways {
			t.Run(fmt.Sprint(name, " ", way), func(t *testing.T) {
				n++
				slug := set(t, name, int64(100+n))
				got := read[api.Tenant](b, 200, b.callAs(admin, "GET", "/v1/tenants/"+slug, ""))
				assert.EqualValues(t, 100+n, got.Quotas.Get(name))
				i := slices.IndexFunc(got.Usage, func(u api.QuotaUsage) bool {
					return u.Name == name
				})
				require.GreaterOrEqual(t, i, 0)
				assert.EqualValues(t, 100+n, got.Usage[i].Limit)
				assert.True(t, got.Usage[i].Own)
			})
		}
	}
}

// Each field of what is configured is kept, as it was given, by each call that can set it.
func TestEveryFieldIsKept(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/first"}`)).ID
	told := fmt.Sprintf(`"on_final":{"url":"https://w.example.com/ended","on":["failed"],"target":%q}`,
		asyncflow.TargetName("https://w.example.com", ""))
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", // it makes the target
		`{"type":"pipe","context":1,"on_final":{"url":"https://w.example.com/"}}`))
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/claimed",
		`{"stages":[{"name":"one","mode":"claim"}]}`).status)
	const stage = `"name":"one","timeout":"7s","max_processing_time":"8m","max_snooze":"9h","priority":9,
		"retry":{"max_attempts":3,"interval":4},"next":["finish"],"spawn":["pipe"]`
	const delivery = `"weight":2,"max_in_flight":3,"rate":"4/s",
		"batch":{"max_tasks":5,"max_wait":"20ms"},"headers":{"X-One":"1"}`
	for _, c := range []struct {
		schema, method, path string
		bodies               []string
		hidden               string // fields that are in no answer, or not by that name
	}{
		{"TaskTypeSpec", "PUT", "/v1/task-types/other", []string{`{"stages":[{` + stage + `}],
			"retry":{"max_attempts":5,"interval":6},"schedule_limit":7,"schedule_interval":"8s",
			"max_in_flight":9,"rate":"10/m","flow":{"max_in_flight":2,"rate":"3/s"},"roll_rows":1234,
			"roll_age":"13h","retention":"336h","max_deliver_bytes":1234,"max_steps":77,
			"start_by":"30m","end_by":"2h","searchable":["user","metadata.order"],` + told + `}`,
			`{"stages":[{"name":"two"}],"stage_mapping":{"one":"two"},
			"retention":{"tasks":"336h","context":"24h"}}`}, ""},
		{"Stage", "PUT", "/v1/task-types/staged", []string{"{" + stage + `,
			"start_by":"5m","deliver":{"input":true,"outputs":["one"]},"fan_out":{"items":"/a",
			"shared":"/b","max_parallel":2,"on_child_failure":{"tolerate":{"count":3}},"results":"settled"}}`,
			`{"name":"one","mode":"claim","quorum":{"votes":3,"max_votes":7,"agree_on":"/a"},
			"window":{"tasks":20,"per":"1h"},"identity":"unchecked"}`,
			`{"name":"one","on_failure":{"next":"undo"}}`,
			`{"name":"one","mode":"wait","wait":{"signal":"go","timeout":"1h",
			"on_timeout":{"next":"undo"}}}`}, ""},
		{"ScheduleSpec", "PUT", "/v1/schedules/nightly", []string{`{"type":"pipe","context":{"a":[1]},
			"priority":7,"retry":{"max_attempts":2},"depends_on":[{"type":"pipe","key":"k",
			"on_failure":"run","wait_for":"3h"}],"context_from":"dependencies","cron":"*/7 3 * * *",
			"time_zone":"Europe/Berlin","overlap":"skip","catch_up":"all","catch_up_limit":5,
			"starts_at":"2031-01-01T00:00:00Z","ends_at":"2032-01-01T00:00:00Z"}`,
			`{"type":"pipe","context":0,"every":"17s",` + told + `}`,
			`{"type":"claimed","context":0,"every":"17s",
			"claim":{"exclude":["anna","b*"],"labels":{"lang":"de"}}}`,
			`{"type":"pipe","context":0,"every":"17s","start_by":"30m","end_by":"2h",
			"user":"u","tags":["a"],"metadata":{"b":"c"},
			"trace":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`}, ""},
		{"NewEndpoint", "POST", "/v1/endpoints", []string{
			`{"type":"pipe","stage":"second","url":"https://w.example.com/x",` + delivery + `}`},
			"listen secret secret_kind allow_duplicate auth tls"},
		{"EndpointPatch", "PATCH", "/v1/endpoints/" + id, []string{
			`{"url":"https://w.example.com/y",` + delivery + `}`}, "allow_duplicate auth tls"},
	} {
		t.Run(c.schema, func(t *testing.T) {
			set := strings.Fields(c.hidden)
			for _, body := range c.bodies {
				set = append(set, b.kept(t, c.method, c.path, c.schema, body)...)
			}
			for _, name := range schemaFields[string](t, c.schema) {
				assert.Contains(t, set, name, "a field that this test doesn't set")
			}
		})
	}
}

// Each duration of what is configured is read back as it was written last.
func TestEveryDurationIsReadAsWritten(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/first"}`)).ID
	long := []string{"90m", "0.5h", "1h30m", "1h30m0s", "5400s", "5400000ms", "1d", "0.25d",
		"0.5d6h"}
	short := []string{"1500ms", "1.5s", "1s500ms", "1500000us", "0.00002d"}
	var set []string
	for _, c := range []struct {
		field, method, path string
		body                string // with %q for the duration
		texts               []string
	}{
		{"TaskTypeSpec.retention", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one"}],"retention":%q}`, long},
		{"TaskTypeSpec.retention", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one"}],"retention":{"context":%q}}`, long},
		{"TaskTypeSpec.roll_age", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one"}],"roll_age":%q}`, long},
		{"TaskTypeSpec.schedule_interval", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one"}],"schedule_interval":%q}`, slices.Concat(long, short)},
		{"Stage.timeout", "PUT", "/v1/task-types/a", `{"stages":[{"name":"one","timeout":%q}]}`,
			append(short, "0.5h", "90s")},
		{"Stage.max_processing_time", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one","max_processing_time":%q}]}`, slices.Concat(long, short)},
		{"Stage.max_snooze", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one","max_snooze":%q}]}`, slices.Concat(long, short)},
		{"Stage.start_by", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one","start_by":%q}]}`, slices.Concat(long, short)},
		{"TaskTypeSpec.start_by", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one"}],"start_by":%q}`, long},
		{"TaskTypeSpec.end_by", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one"}],"end_by":%q}`, long},
		{"ScheduleSpec.start_by", "PUT", "/v1/schedules/nightly",
			`{"type":"pipe","context":0,"every":"1h","start_by":%q}`, long},
		{"ScheduleSpec.end_by", "PUT", "/v1/schedules/nightly",
			`{"type":"pipe","context":0,"every":"1h","end_by":%q}`, long},
		{"Wait.timeout", "PUT", "/v1/task-types/a",
			`{"stages":[{"name":"one","mode":"wait","wait":{"signal":"go","timeout":%q}}]}`,
			long},
		{"Window.per", "PUT", "/v1/task-types/b",
			`{"stages":[{"name":"one","mode":"claim","window":{"tasks":20,"per":%q}}]}`, long},
		{"ScheduleSpec.every", "PUT", "/v1/schedules/nightly",
			`{"type":"pipe","context":0,"every":%q}`, long},
		{"Dependency.wait_for", "PUT", "/v1/schedules/nightly", `{"type":"pipe","context":0,
			"every":"1h","depends_on":[{"type":"pipe","key":"k","wait_for":%q}]}`, long},
		{"EndpointBatch.max_wait", "PATCH", "/v1/endpoints/" + id,
			`{"batch":{"max_tasks":5,"max_wait":%q}}`, short},
		{"EndpointBatch.max_wait", "POST", "/v1/endpoints", `{"type":"pipe","stage":"second",
			"url":"https://w.example.com/%[1]s","batch":{"max_tasks":5,"max_wait":%[1]q}}`, short},
		{"AlertRules.backlog_age", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"backlog_age":%q}}`,
			slices.Concat(long, short)},
		{"AlertRules.no_claimers", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"no_claimers":%q}}`, long},
		{"AlertRules.dependency_late", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"dependency_late":%q}}`, long},
		{"AlertRules.failed_within", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"failed_for_good":1,"failed_within":%q}}`,
			[]string{"90s", "1d", "1440m"}},
		{"AlertRules.blocked_key", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"blocked_key":%q}}`, long},
		{"AlertRules.long_wait", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"long_wait":%q}}`,
			slices.Concat(long, short)},
		{"AlertRules.will_expire_within", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"will_expire":1,"will_expire_within":%q}}`,
			[]string{"90s", "1h", "60m"}},
		{"AlertRules.long_wait_within", "PUT", "/v1/alerts",
			`{"url":"https://w.example.com/a","rules":{"long_wait":"1s","long_wait_within":%q}}`,
			[]string{"90s", "1h", "60m"}},
	} {
		set = append(set, c.field)
		// In the short form a field takes one half of the texts, and the next field the other: in
		// each half are equal ones beside each other.
		if half := len(c.texts) / 2; !longform.Asked() && len(set)%2 == 0 {
			c.texts = c.texts[:half+1]
		} else if !longform.Asked() {
			c.texts = c.texts[half-1:]
		}
		t.Run(c.field+" "+c.method, func(t *testing.T) {
			for _, text := range c.texts {
				body := fmt.Sprintf(c.body, text)
				if c.path != "/v1/alerts" {
					b.kept(t, c.method, c.path, c.field, body)
					continue
				}
				require.Less(t, b.call(c.method, c.path, body).status, 300)
				got := read[map[string]any](b, 200, b.call("GET", c.path, ""))["rules"]
				assert.Contains(t, fmt.Sprint(got), ":"+text+"]")
			}
			assert.Equal(t, 400, b.call(c.method, c.path, fmt.Sprintf(c.body, "7y")).status)
		})
	}
	for _, schema := range []string{"TaskTypeSpec", "Stage", "Window", "ScheduleSpec", "Dependency",
		"EndpointBatch", "AlertRules"} {
		for _, name := range durationFields(t, schema) {
			assert.Contains(t, set, schema+"."+name, "a duration that this test doesn't set")
		}
	}
}

// durationFields returns the fields of a schema of the contract that are durations.
func durationFields(t *testing.T, schema string) (names []string) {
	t.Helper()
	doc := contracttest.Document()
	duration := doc.Components.Schemas["Duration"].Value
	require.NotNil(t, doc.Components.Schemas[schema], schema)
	for name, field := range doc.Components.Schemas[schema].Value.Properties {
		if field.Value == duration || len(field.Value.AllOf) > 0 &&
			field.Value.AllOf[0].Value == duration {
			names = append(names, name)
		}
	}
	require.NotEmpty(t, names, schema)
	return names
}

// kept sets what is in a body, checks that it is read back, and returns the names of the fields.
func (b *bundle) kept(t *testing.T, method, path, schema, body string) []string {
	sent := body
	if schema == "Stage" {
		sent = `{"stages":[` + body + `,{"name":"undo"}]}`
	}
	a := b.call(method, path, sent)
	require.Less(t, a.status, 300, "%s", a.body)
	if method == "POST" {
		path += "/" + read[api.Endpoint](b, 201, a).ID
	}
	got := read[map[string]any](b, 200, b.call("GET", path, ""))
	if schema == "Stage" {
		got = got["stages"].([]any)[0].(map[string]any)
	}
	var want map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &want))
	assertKept(t, schema, want, got)
	return slices.Collect(maps.Keys(want))
}

// assertKept checks that everything in want is in got.
func assertKept(t *testing.T, path string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		in, ok := got.(map[string]any)
		require.True(t, ok, "%s: %v", path, got)
		for name, value := range want {
			assertKept(t, path+"."+name, value, in[name])
		}
	case []any:
		in, ok := got.([]any)
		require.True(t, ok, "%s: %v", path, got)
		require.Len(t, in, len(want), path)
		for i, value := range want {
			assertKept(t, fmt.Sprint(path, ".", i), value, in[i])
		}
	default:
		if got != "********" { // values of headers are hidden
			assert.Equal(t, want, got, path)
		}
	}
}

// schemaFields returns the names of the fields of a schema of the contract.
func schemaFields[T ~string](t *testing.T, schema string) (names []T) {
	t.Helper()
	doc := contracttest.Document()
	for name := range doc.Components.Schemas[schema].Value.Properties {
		names = append(names, T(name))
	}
	require.NotEmpty(t, names)
	return names
}
