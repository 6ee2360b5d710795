package contract

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A body of 1 MB with a fault in each of its values uses little more memory than the values
// themselves, and still has more faults than an answer names.
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
		"of a map":      `{"stages":[{"name":"only"}],"stage_mapping":{"a":"b"` + unknown.String() + `}}`,
	} {
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
	}
}
