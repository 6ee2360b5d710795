package catalog

import "time"

// OnFollowUp registers a function that is called with a tenant when FollowUp has something to do
// for it, and with how long that may wait for more. It must not block. Call OnFollowUp before the
// first write.
func (s *Core) OnFollowUp(tell func(tenant string, linger time.Duration)) {
	s.TellLinger = tell
}

// TellFollowUp says that FollowUp has something to do for a tenant at once.
func (s *Core) TellFollowUp(tenant string) { s.TellLinger(tenant, 0) }
