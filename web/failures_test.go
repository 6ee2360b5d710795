package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Failures are shown by their errors; from a group one gets to its tasks, and redrives them. On a
// phone nothing is wider than the page.
func TestFailures(t *testing.T) {
	p := openPage(t, all...)
	p.open("/console/failures?last=15m&type=nothing-here")
	p.See("nothing-here")
	p.makeType("bills")
	const declined = `{"customer":"c-19","card":"declined"}`
	failed := []string{p.submit("bills", declined, client.StatusFailed),
		p.submit("bills", declined, client.StatusFailed)}
	retried, err := p.api.Submit(t.Context(), client.NewTask{Type: "bills",
		Context: client.JSON(declined), Retry: client.RetryPolicy{MaxAttempts: 5,
			Interval: asyncflow.Seconds(3600, 3600)}})
	require.NoError(t, err)
	p.until(retried.ID, func(t client.Task) bool { return t.Error != "" })
	p.open("/console/failures?last=15m&type=bills")
	p.See("2 tasks failed, with 1 kind of errors.")
	p.See("bills in ")
	assert.Empty(t, p.axe())
	p.resize(390, 800)
	p.fits(390)
	p.resize(1280, 800)
	p.Click("Redrive")
	p.See("2 tasks, failed with this error: of the type bills.")
	p.Click("Back")
	p.Click("List")
	p.See("2 tasks match")
	p.Run(`return /fingerprint=[0-9a-f]{16}/.test(location.search)`)
	p.Run(`return [...document.querySelectorAll("[data-row]")].map((r) => r.textContent).join() ===
		"` + failed[1] + `,` + failed[0] + `"`)
	p.Run(`return /order=ended/.test(location.search)`)
	p.open("/console/tasks?type=bills&order=ended")
	p.See("which needs a status of final tasks")
	assert.Empty(t, p.axe())
	p.Click("List them by the time of their submit")
	p.See("3 tasks match")
	p.act("Redrive", "2 tasks, failed with this error: of the type bills.")
	p.See("2 of 2")
	for _, id := range failed {
		p.until(id, func(t client.Task) bool { return t.Status == client.StatusFailed })
		assert.Contains(t, p.outcomes(id), "redriven")
	}
	p.See("2 failed") // again, since the operation began
	assert.Empty(t, p.axe())
	assert.NotContains(t, p.outcomes(retried.ID), "redriven")

	p.act("Cancel", "1 task, not yet final, whose last attempt had this error: of the type bills.")
	p.See("1 of 1")
	p.until(retried.ID, func(t client.Task) bool { return t.Status == client.StatusCancelled })
	for _, id := range failed {
		p.until(id, func(t client.Task) bool { return t.Status == client.StatusFailed })
	}
	p.quiet(p.missing("/v1/failures"), "400 (Bad Request) "+p.node.URL+"/v1/tasks")
}

// act does something with the group of failures of bills, after a question.
func (p *page) act(label, question string) {
	p.t.Helper()
	p.open("/console/failures?last=15m&type=bills")
	p.See("2 tasks failed, with 1 kind of errors.")
	p.Click(label)
	p.See(question)
	p.Click(label)
	p.See(label + ": started")
}

// until waits until a task is as it is to be.
func (p *page) until(id string, is func(client.Task) bool) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		task, err := p.api.Get(p.t.Context(), id)
		return err == nil && is(task)
	}, patience, 20*time.Millisecond)
}

// outcomes returns how the attempts of a task ended, oldest first.
func (p *page) outcomes(id string) []string {
	p.t.Helper()
	attempts, err := p.api.Attempts(p.t.Context(), id)
	require.NoError(p.t, err)
	var all []string
	for _, a := range attempts {
		all = append(all, string(a.Outcome))
	}
	return all
}
