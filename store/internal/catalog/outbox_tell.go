package catalog

import "time"

// TellLinger tells listeners that FollowUp has something to do for a tenant, and how long that may
// wait for more.
func (s *Core) TellLinger(tenant string, linger time.Duration) {
	s.Wakeups.listeners.TellFollowUp(tenant, linger)
}

// TellFollowUp says that FollowUp has something to do for a tenant at once.
func (s *Core) TellFollowUp(tenant string) { s.TellLinger(tenant, 0) }
