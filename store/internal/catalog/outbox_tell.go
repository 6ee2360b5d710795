package catalog

import "time"

// TellFollowUpWithin tells listeners that FollowUp has something to do for a tenant, and how long
// that may wait for more.
func (s *Core) TellFollowUpWithin(tenant string, linger time.Duration) {
	s.Wakeups.listeners.TellFollowUp(tenant, linger)
}

// TellFollowUp says that FollowUp has something to do for a tenant at once.
func (s *Core) TellFollowUp(tenant string) { s.TellFollowUpWithin(tenant, 0) }
