package asyncflow_test

import (
	"strings"
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

func TestErrorCode(t *testing.T) {
	for _, c := range []struct {
		kind   asyncflow.OutcomeKind
		status int
		text   string
		want   string
	}{
		{asyncflow.OutcomeDone, 200, "", ""},
		{asyncflow.OutcomeFailed, 503, "503 Service Unavailable", "503"},
		{asyncflow.OutcomeRejected, 422, "card_declined: no funds", "422"},
		{asyncflow.OutcomeFailed, 200, "card_declined: no funds", "card_declined"},
		{asyncflow.OutcomeFailed, 0, "dial tcp: refused", ""},
		{asyncflow.OutcomeFailed, -1, "no answer", "timeout"},
		{asyncflow.OutcomeFailed, -32768, "from a later version", "other"},
		{asyncflow.OutcomeLost, 0, "the lease ran out", "lost"},
		{asyncflow.OutcomeTimedOut, 0, "wait_timeout: it didn't come", "wait_timeout"},
		{asyncflow.OutcomeFailed, 200, strings.Repeat("x", 61) + ": long", ""},
		{asyncflow.OutcomeFailed, 200, ": nothing", ""},
	} {
		t.Run(c.text, func(t *testing.T) {
			assert.Equal(t, c.want, asyncflow.ErrorCode(c.kind, c.status, c.text))
		})
	}
}

func TestStatusOrFailure(t *testing.T) {
	timeout := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Failure: asyncflow.FailureTimeout}
	assert.Equal(t, -1, timeout.StatusOrFailure())
	timeout.Status = 504
	assert.Equal(t, 504, timeout.StatusOrFailure())
	assert.Zero(t, asyncflow.Outcome{Kind: asyncflow.OutcomeLost}.StatusOrFailure())
}
