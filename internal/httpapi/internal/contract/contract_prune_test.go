package contract

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A body of 1 MB with a fault in each of its values uses little more memory than the values
// themselves, and there are still more faults in it than an answer names.
func TestManyFaultsAreBounded(t *testing.T) {
	c, err := New(func(*Operation) bool { return true })
	require.NoError(t, err)
	o, values := c.Find("PUT", "/v1/task-types/z")
	var unknown strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&unknown, `,"k%d":1`, i)
	}
	for name, body := range map[string]string{
		"entries":       `{"stages":[` + strings.Repeat("1,", 400_000) + `1]}`,
		"unknown":       `{"stages":[{"name":"only"}]` + unknown.String() + `}`,
		"inner unknown": `{"stages":[{"name":"only"` + unknown.String() + `}]}`,
		"of a map": `{"stages":[{"name":"only"}],"stage_mapping":{"a":"b"` + unknown.String() +
			`}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.Check(t.Context(), Request{
				Operation: o, Values: values, Path: "/v1/task-types/z", Body: []byte(body)})
			runtime.ReadMemStats(&after)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(80<<20), "%s: in bytes", name)
			var known *asyncflow.Error
			require.True(t, errors.As(err, &known), name)
			assert.Greater(t, len(known.Fields), MaxFaults, name)
			assert.Less(t, len(known.Fields), 2*MaxFaults, name)
		})
	}
}

// What isn't allowed stays so, and what is allowed stays as it is.
func TestPruneKeepsTheVerdict(t *testing.T) {
	t.Parallel()
	array := func(limit uint64) *openapi3.Schema {
		return openapi3.NewArraySchema().WithItems(openapi3.NewInt64Schema()).
			WithMaxItems(int64(limit))
	}
	object := openapi3.NewObjectSchema().WithProperty("a", array(3)).WithoutAdditionalProperties()
	numbers := func(n int) []any { return slices.Repeat([]any{1.0}, n) }
	fields := func(n int) map[string]any {
		m := map[string]any{"a": numbers(3)}
		for i := range n {
			m[fmt.Sprint(i)] = 1.0
		}
		return m
	}
	oneOf := openapi3.NewOneOfSchema
	for name, c := range map[string]struct {
		schema *openapi3.Schema
		value  any
	}{
		"array":               {array(3), numbers(3)},
		"too long":            {array(3), numbers(100)},
		"of a number or list": {oneOf(openapi3.NewInt64Schema(), array(3)), numbers(100)},
		"of two lists":        {oneOf(array(3), array(50)), numbers(100)},
		"of two other lists":  {oneOf(array(50), array(3)), numbers(100)},
		"of the longer list":  {oneOf(array(3), array(50)), numbers(50)},
		"of all lists":        {openapi3.NewAllOfSchema(array(50), array(3)), numbers(100)},
		"object":              {object, fields(0)},
		"unknown fields":      {object, fields(100)},
	} {
		t.Run(name, func(t *testing.T) {
			allowed := c.schema.VisitJSON(c.value) == nil
			assert.Equal(t, allowed, c.schema.VisitJSON(prune(c.schema, c.value)) == nil, name)
		})
	}
}
