package news

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// A listener has one entry for each type and tenant, with all that matters of what came meanwhile.
func TestNewsAreMerged(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	pipe := config.TypeKey{Tenant: "acme", Type: "pipe"}
	var all Listeners
	tasks := all.Listen(Topics{Tasks: true})
	rest := all.Listen(Topics{Config: true, FollowUps: true})
	for _, after := range []time.Duration{-1, -2, 2, 1, -1, 3, 0} {
		all.TellReady(pipe, now.Add(after*time.Second), now)
	}
	all.TellReady(config.TypeKey{Tenant: "acme", Type: "other"}, now, now)
	all.TellLost()
	all.TellChanged("acme")
	all.TellChanged("acme")
	for _, linger := range []time.Duration{5, 3, 4} {
		all.TellFollowUp("acme", linger)
	}

	<-tasks.Changed()
	assert.Equal(t, News{Lost: true, Ready: map[config.TypeKey]Announced{
		pipe: {Tasks: 7, Due: now.Add(-2 * time.Second),
			Later: now.Add(time.Second)},
		{Tenant: "acme", Type: "other"}: {Tasks: 1, Due: now},
	}}, tasks.Read())
	<-rest.Changed()
	assert.Equal(t, News{Changed: map[string]bool{"acme": true},
		FollowUps: map[string]time.Duration{"acme": 3}}, rest.Read())
	assert.Empty(t, tasks.Changed())
	assert.Equal(t, News{}, tasks.Read())
	all.TellReady(pipe, now, now)
	<-tasks.Changed()
	assert.Len(t, tasks.Read().Ready, 1)
}
