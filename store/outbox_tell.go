package store

import "time"

// OnFollowUp registers a function that is called with a tenant when FollowUp has something to do
// for it, and with how long that may wait for more. It must not block. Call OnFollowUp before the
// first write.
func (s *Store) OnFollowUp(tell func(tenant string, linger time.Duration)) {
	s.tellLinger = tell
}

// tellFollowUp says that FollowUp has something to do for a tenant at once.
func (s *Store) tellFollowUp(tenant string) { s.tellLinger(tenant, 0) }
