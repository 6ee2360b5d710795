package asyncflow_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
)

func TestEndpointFailure(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]asyncflow.Outcome{
		"other":         {},
		"timeout":       {Failure: asyncflow.FailureTimeout},
		"no_connection": {Failure: asyncflow.FailureNoConnection},
		"login":         {Failure: asyncflow.FailureLogin},
		"500":           {Status: 500},
		"422":           {Status: 422},
		"3xx":           {Status: 302},
		"4xx":           {Status: 418},
		"5xx":           {Status: 521},
	} {
		t.Run(want, func(t *testing.T) {
			assert.Equal(t, want, o.EndpointFailure().String())
		})
	}
}

// No answer of a worker makes more counts than there are.
func TestFailuresAreFew(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for status := range 1200 {
		f := asyncflow.Outcome{Status: status}.EndpointFailure()
		assert.Less(t, int(f), asyncflow.FailureCodes)
		names[f.String()] = true
	}
	for f := range 256 {
		names[asyncflow.FailureCode(f).String()] = true
	}
	assert.Len(t, names, asyncflow.FailureCodes, "each has a name of its own")
	assert.NotContains(t, names, "")
}
