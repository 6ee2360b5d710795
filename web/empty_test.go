package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
)

// Pages that have nothing to show say so, and break no rule of axe, light, dark and narrow: first
// the pages of a tenant without types, then with a type that has no endpoint and no task.
func TestEmptyPages(t *testing.T) {
	p := openPageOf(t, "newcomers")
	for _, one := range []shown{
		{"empty-overview", "/console", "There are no task types yet"},
		{"empty-tasks", "/console/tasks", "There are no task types yet"},
		{"empty-failures", "/console/failures", "Nothing failed in the last hour"},
		{"empty-types", "/console/types", "There are no task types yet"},
		{"empty-endpoints", "/console/endpoints", "There are no endpoints yet"},
		{"empty-workers", "/console/workers", "No attempt ended in the last 15 minutes"},
		{"empty-schedules", "/console/schedules", "There are no schedules yet"},
		{"empty-operations", "/console/operations", "There are no operations"},
		{"empty-alerts", "/console/alerts", "Alerts are off"},
		{"empty-audit", "/console/audit?action=none", "No entry matches"},
		{"missing-page", "/console/none", "There is no such page"},
		{"missing-task", "/console/tasks/none.1.1", "There is no task none.1.1"},
		{"missing-type", "/console/types/none", "none"},
	} {
		p.checkPage(one)
	}
	_, err := p.api.PutTaskType(t.Context(), "letters", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "write"}, {Name: "post"}}})
	require.NoError(t, err)
	for _, one := range []shown{
		{"idle-overview", "/console", "letters"},
		{"idle-tasks", "/console/tasks?type=letters", "letters has no tasks yet"},
		{"idle-type", "/console/types/letters", "write"},
		{"idle-unmatched", "/console/tasks?type=letters&status=failed", "No task matches"},
	} {
		p.checkPage(one)
	}
}

// A token without the scope to read gets pages that say what it lacks.
func TestPagesWithoutScope(t *testing.T) {
	p := openPage(t, auth.ScopeSubmit)
	for _, one := range []shown{
		{"unread-overview", "/console", "Overview Docs This page needs the scope read."},
		{"unread-tasks", "/console/tasks", "Submit a task"},
		{"unread-task", "/console/tasks/none.1.1", "This page needs the scope read."},
		{"unread-failures", "/console/failures", "This page needs the scope read."},
		{"unread-alerts", "/console/alerts", "This page needs the scope manage"},
	} {
		p.checkPage(one)
	}
}

// An operator's pages before there is anything, and with a tenant in trouble.
func TestOperatorPages(t *testing.T) {
	p := openPage(t)
	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.enter(operator)
	for _, one := range []shown{
		{"operator-overview", "/console", "Tenants in trouble"},
		{"missing-tenant", "/console/tenants/none", "none"},
	} {
		p.checkPage(one)
	}
}
