package asyncflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
)

func TestActionOf(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][2]string{
		"putTaskType":       {"task_type.put", "task_type"},
		"cancelTask":        {"task.cancel", "task"},
		"cancelTasks":       {"tasks.cancel", "tasks"},
		"prioritizeTasks":   {"tasks.prioritize", "tasks"},
		"rerunTask":         {"task.rerun", "task"},
		"delayTasks":        {"tasks.delay", "tasks"},
		"listOperatorAudit": {"operator_audit.list", "operator_audit"},
		"heartbeat":         {"call.heartbeat", ""},
	} {
		t.Run(id, func(t *testing.T) {
			action, objectType := asyncflow.ActionOf(id)
			assert.Equal(t, want, [2]string{action, objectType}, id)
		})
	}
}

func TestAuditOutcomeOf(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]asyncflow.AuditOutcome{
		200: asyncflow.AuditDone, 204: asyncflow.AuditDone, 400: asyncflow.AuditRefused,
		409: asyncflow.AuditRefused,
		401: asyncflow.AuditDenied, 403: asyncflow.AuditDenied, 500: asyncflow.AuditFailed,
		503: asyncflow.AuditFailed,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			assert.Equal(t, want, asyncflow.AuditOutcomeOf(status))
		})
	}
}

// Texts of callers can neither break a row or a terminal nor fill a disk.
func TestAuditText(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a?b?c?", asyncflow.AuditText("a\x00b\nc\xff", 10))
	assert.Equal(t, "ää", asyncflow.AuditText("äää", 5))
	long := asyncflow.AuditEntry{Subject: strings.Repeat("x", 1000),
		Claimed: asyncflow.AuditClaim{Subject: strings.Repeat("y", 1000)}}.Bounded()
	assert.Len(t, long.Subject, asyncflow.MaxAuditText)
	assert.Len(t, long.Claimed.Subject, asyncflow.MaxAuditClaim)
}
