package openapi_test

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// The example in the contract is a valid stream.
func TestExampleOfEvents(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(asyncflow.OpenAPI)
	require.NoError(t, err)
	content := doc.Paths.Value("/v1/tasks/{id}/events").Get.Responses.Status(200).Value.Content
	events := strings.SplitAfter(content["text/event-stream"].Example.(string), "\n\n")
	require.Len(t, events, 3)
	require.Empty(t, events[2])
	for _, event := range events[:2] {
		require.NoError(t, openapi.CheckEvent([]byte(event)))
	}
}

func TestCheckEvent(t *testing.T) {
	t.Parallel()
	const task = `data: {"id":"t.1.1","type":"t","status":"running",` +
		`"created_at":"2026-11-21T10:00:00Z"}`
	const attempt = "event: attempt\nid: 1\ndata: " +
		`{"seq":1,"at":"2026-11-21T10:00:00Z","stage":"s","attempt":1,"outcome":"done"}`
	for event, want := range map[string]string{
		"event: task\n" + task + "\n\n":               "",
		attempt + "\n\n":                              "",
		"event: task\n" + task + "\n":                 "it has no end",
		"event: task\nretry: 5\n" + task + "\n\n":     `it has the line "retry: 5"`,
		"event: task\n" + task + "\n" + task + "\n\n": `it has the line "data: `,
		"event: later\n" + task + "\n\n":              `no events of the kind "later"`,
		task + "\n\n":                                 `no events of the kind ""`,
		// in the schema of that kind
		"event: attempt\n" + task + "\n\n":          `property "created_at" is unsupported`,
		"event: task\ndata: {\"id\":\"t.1.1\"}\n\n": "is missing",
		"event: task\ndata: {\n\n":                  "unexpected end",
	} {
		t.Run(event, func(t *testing.T) {
			err := openapi.CheckEvent([]byte(event))
			if want == "" {
				require.NoError(t, err, event)
			} else {
				require.ErrorContains(t, err, want, event)
			}
		})
	}
}
