package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
)

// Every duration that a call takes may be given in days and weeks. TestEveryDurationIsReadAsWritten
// tries the durations of types, endpoints and schedules, and package callbacks the durations in
// answers of workers.
func TestDaysAndWeeksEverywhere(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	endpoint := b.createEndpoint(`"url":"https://w.example.com/"`).ID
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/other", `{"stages":[{"name":"only"}]}`).status)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"look","mode":"claim","spawn":["other"]}]}`).status)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/waits",
		`{"stages":[{"name":"one","mode":"wait","wait":{"signal":"go","timeout":"1w"}}]}`).status)
	claimed := func() api.Delivery {
		b.submitJudge(1)
		return b.claim("anna", "")[0]
	}
	call := func(method, path, body string) func() answer {
		return func() answer { return b.call(method, path, body) }
	}
	waiting := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"other","context":1,"delay":"1d"}`)).ID
	task := func(more string) func() answer {
		return call("POST", "/v1/tasks", `{"type":"other","context":1,`+more+`}`)
	}
	spawn := func(more string) func() answer {
		return func() answer {
			return b.report(claimed(), "complete",
				`{"spawn":[{"type":"other","context":1,`+more+`}]}`)
		}
	}
	failed := []string{b.failSecond(), b.failSecond(), b.failSecond()}
	taken := map[string]func() answer{
		"NewTask.delay":      task(`"delay":"1w"`),
		"NewTask.key_window": task(`"key":"a","key_window":"1w2d"`),
		"NewTask.max_wait":   task(`"key":"b","on_conflict":"replace","delay":"1d","max_wait":"1w"`),
		"NewTask.start_by":   task(`"start_by":"1d"`),
		"NewTask.end_by":     task(`"end_by":"1w1d"`),
		"Dependency.wait_for": task(
			`"depends_on":[{"type":"other","key":"later","wait_for":"3d"}]`),
		"NewSignal.keep": call("POST", "/v1/signals",
			`{"name":"go","type":"waits","key":"later","keep":"1w"}`),
		"Redrive.start_by":     call("POST", "/v1/tasks/"+failed[0]+"/redrive", `{"start_by":"1d"}`),
		"Redrive.end_by":       call("POST", "/v1/tasks/"+failed[1]+"/redrive", `{"end_by":"1w"}`),
		"Rerun.delay":          call("POST", "/v1/tasks/"+failed[2]+"/rerun", `{"delay":"1w"}`),
		"Rerun.start_by":       call("POST", "/v1/tasks/"+failed[2]+"/rerun", `{"start_by":"1d"}`),
		"Rerun.end_by":         call("POST", "/v1/tasks/"+failed[2]+"/rerun", `{"end_by":"1w"}`),
		"TaskPatch.delay":      call("PATCH", "/v1/tasks/"+waiting, `{"delay":"1w"}`),
		"TaskPatch.start_by":   call("PATCH", "/v1/tasks/"+waiting, `{"start_by":"1d"}`),
		"TaskPatch.end_by":     call("PATCH", "/v1/tasks/"+waiting, `{"end_by":"2w"}`),
		"BulkDelay.delay":      call("POST", "/v1/tasks/delay", `{"type":"other","delay":"1w"}`),
		"BulkRedrive.start_by": call("POST", "/v1/tasks/redrive", `{"type":"pipe","start_by":"1d"}`),
		"BulkRedrive.end_by":   call("POST", "/v1/tasks/redrive", `{"type":"pipe","end_by":"1w"}`),
		"BulkRerun.start_by": call("POST", "/v1/tasks/rerun",
			`{"type":"other","status":"failed","start_by":"1d"}`),
		"BulkRerun.end_by": call("POST", "/v1/tasks/rerun",
			`{"type":"other","status":"failed","end_by":"1w"}`),
		"Resume.ramp": call("POST", "/v1/task-types/pipe/resume", `{"ramp":"0.5d"}`),
		"SecretRotation.overlap": call("POST", "/v1/endpoints/"+endpoint+"/rotate-secret",
			`{"overlap":"3d"}`),
		"Claim.wait":             func() answer { return b.claimCall("bob", `,"wait":"0.000001d"`) },
		"SpawnedTask.delay":      spawn(`"delay":"1w"`),
		"SpawnedTask.key_window": spawn(`"key":"c","key_window":"2d"`),
		"SpawnedTask.start_by":   spawn(`"start_by":"1d"`),
		"SpawnedTask.end_by":     spawn(`"end_by":"1w"`),
		"Failure.retry_after": func() answer {
			return b.report(claimed(), "fail", `{"error":"busy","retry_after":"0.5d"}`)
		},
		"Snooze.retry_after": func() answer {
			return b.report(claimed(), "snooze", `{"retry_after":"1w"}`)
		},
	}
	for place, path := range map[string]string{
		"GET /v1/tasks/{id} wait":           "/v1/tasks/" + waiting + "?wait=0.000001d",
		"GET /v1/stats/{type}/scale target": "/v1/stats/other/scale?target=1d",
		"GET /v1/stats/{type}/history step": "/v1/stats/other/history?step=1d",
		"GET /v1/stats/history step":        "/v1/stats/history?step=1d",
	} {
		taken[place] = call("GET", path, "")
	}
	taken["POST /v1/tasks wait"] = call("POST", "/v1/tasks?wait=0.000001d",
		`{"type":"other","context":1}`)
	taken["DELETE /v1/tenants/{slug} grace"] = func() answer {
		return b.callAs(b.adminToken(), "DELETE", "/v1/tenants/other?grace=2w", "")
	}
	for place, do := range taken {
		t.Run(place, func(t *testing.T) {
			a := do()
			assert.Less(t, a.status, 300, "%s", a.body)
		})
	}
	elsewhere := []string{"TaskTypeSpec", "Stage", "Window", "Wait", "Retention", "ScheduleSpec",
		"EndpointBatch", "AlertRules", // TestEveryDurationIsReadAsWritten
		"DeliveryAnswer", "DeliveryResult", // tests of package callbacks
		"TaskType", "Schedule", "StatsHistory", "Scale", "EndpointTestResult"} // of answers alone
	for _, place := range durations(t) {
		schema, _, _ := strings.Cut(place, ".")
		if !slices.Contains(elsewhere, schema) {
			assert.True(t, taken[place] != nil, "this test doesn't give %s", place)
		}
	}
}

// durations returns the places of the contract with a duration: Schema.field, or a call with the
// name of its parameter.
func durations(t *testing.T) (places []string) {
	t.Helper()
	doc := contracttest.Document()
	kinds := map[*openapi3.Schema]bool{}
	for _, name := range []string{"Duration", "KeyWindow", "Deadline", "Retention"} {
		kinds[doc.Components.Schemas[name].Value] = true
	}
	var walk func(name string, of *openapi3.Schema)
	walk = func(name string, of *openapi3.Schema) {
		for field, at := range of.Properties {
			if kinds[at.Value] || len(at.Value.AllOf) > 0 && kinds[at.Value.AllOf[0].Value] {
				places = append(places, name+"."+field)
			}
		}
		for _, one := range slices.Concat(of.OneOf, of.AllOf) {
			walk(name, one.Value)
		}
	}
	for name, of := range doc.Components.Schemas {
		walk(name, of.Value)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for _, p := range op.Parameters {
				example, _ := p.Value.Schema.Value.Example.(string)
				if _, err := asyncflow.ParseDuration(example); err == nil {
					places = append(places, fmt.Sprint(method, " ", path, " ", p.Value.Name))
				}
			}
		}
	}
	require.Greater(t, len(places), 60)
	return places
}
