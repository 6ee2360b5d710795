package payload

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestContextHasItsNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 1234567890} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			context := Append(nil, n, Usual)
			assert.Len(t, context, Usual)
			assert.True(t, json.Valid(context))
			got, ok := Number([]byte(`{"task_id":"a.1.2","context":` + string(context) + `,"callback":{}}`))
			assert.True(t, ok)
			assert.Equal(t, n, got)
		})
	}
	_, ok := Number([]byte(`{"context":{}}`))
	assert.False(t, ok)
}

func TestContextsOfAllSizes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{Usual, 10 << 10, 100 << 10} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			context := Append(nil, 7, size)
			assert.Len(t, context, size)
			assert.True(t, json.Valid(context))
		})
	}
}
