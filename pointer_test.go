package asyncflow_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestPointTo(t *testing.T) {
	t.Parallel()
	doc := json.RawMessage(`{"a": {"b/c": [1, {"~": 2.50}]}, "": 3}`)
	for pointer, want := range map[string]string{"": string(doc), "/a/b~1c/1/~0": "2.50",
		"/a/b~1c/0": "1", "/": "3", "/a/b~1c": `[1, {"~": 2.50}]`} {
		t.Run(pointer, func(t *testing.T) {
			got, err := asyncflow.PointTo(doc, pointer)
			require.NoError(t, err, pointer)
			assert.Equal(t, want, string(got), pointer)
		})
	}
	for pointer, want := range map[string]string{
		"/x":         `/x: the context has no "x" there`,
		"/a/b~1c/2":  `/a/b~1c/2: an array of 2 has no entry "2"`,
		"/a/b~1c/01": `/a/b~1c/01: an array of 2 has no entry "01"`,
		"/a/b~1c/-":  `/a/b~1c/-: an array of 2 has no entry "-"`,
		"//y":        `//y: step 2 is in a number`,
	} {
		t.Run(pointer, func(t *testing.T) {
			_, err := asyncflow.PointTo(doc, pointer)
			assert.EqualError(t, err, want)
		})
	}
}
