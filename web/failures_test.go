package web_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/client"
)

// Failures are shown by their errors; from a group one gets to its tasks, and redrives them. On a
// phone nothing is wider than the page.
func TestFailures(t *testing.T) {
	p := openPage(t, all...)
	p.open("/console/failures?last=15m&type=nothing-here")
	p.See("nothing-here")
	p.makeType("bills")
	for range 2 {
		p.submit("bills", `{"customer":"c-19","card":"declined"}`, client.StatusFailed)
	}
	p.open("/console/failures?last=15m&type=bills")
	p.See("2 tasks failed, with 1 kind of errors.")
	p.See("bills in ")
	assert.Empty(t, p.axe())
	p.resize(390, 800)
	p.Run(`return document.documentElement.scrollWidth <= 390`)
	p.resize(1280, 800)
	p.Click("Redrive")
	p.See("2 tasks, failed with this error: of the type bills.")
	p.Click("Back")
	p.Click("List")
	p.See("2 tasks match")
	p.Run(`return /fingerprint=[0-9a-f]{16}/.test(location.search)`)
}
