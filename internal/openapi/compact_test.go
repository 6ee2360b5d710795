package openapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// What requests are checked by is what openapi.yaml says.
func TestCompactContractIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := openapi.Compact(asyncflow.OpenAPI)
	require.NoError(t, err)
	require.Equal(t, string(want), string(openapi.Contract), "run go generate ./internal/httpapi")
}

// Fields go, but not what is named like them, nor values.
func TestCompact(t *testing.T) {
	t.Parallel()
	got, err := openapi.Compact([]byte(`
info: {title: t, description: gone, x-kept: {description: a}}
paths:
  /example:
    get:
      summary: gone
      parameters: [{name: example, example: gone, description: gone, schema: {minimum: 1}}]
      responses: {"200": {description: gone, headers: {Summary: {description: gone}}}}
      callbacks: {gone: {}}
components:
  schemas:
    summary:
      description: gone
      allOf: [{description: gone}, {type: object, maximum: 12345678901234567890}]
      properties:
        description: {description: gone, maxLength: 7, default: {example: kept}}
        example: {pattern: "^a", description: kept, example: gone}
        callbacks: {enum: [summary], examples: {gone: {value: 1}}}
`))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"info": {"title": "t", "x-kept": {"description": "a"}},
		"paths": {"/example": {"get": {
			"parameters": [{"name": "example", "schema": {"minimum": 1}}],
			"responses": {"200": {"headers": {"Summary": {}}}}
		}}},
		"components": {"schemas": {"summary": {
			"allOf": [{}, {"type": "object", "maximum": 12345678901234567890}],
			"properties": {
				"description": {"maxLength": 7, "default": {"example": "kept"}},
				"example": {"pattern": "^a", "description": "kept"},
				"callbacks": {"enum": ["summary"]}
			}
		}}}
	}`, string(got))
	require.Contains(t, string(got), "12345678901234567890")
	require.Contains(t, string(got), "\n\"summary\": {", "a schema has a line")
	_, err = openapi.Compact([]byte("a: b: c"))
	require.ErrorContains(t, err, "openapi.yaml: ")
}
