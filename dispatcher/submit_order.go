package dispatcher

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Batches of a type are written two at a time, and a call may be spread over several. So of the
// submits of a call with one key, the first one is queued alone, and the others follow after its
// end: otherwise a later one might take the key, and on_conflict would cancel the latest task
// instead of the first. There is no order between submits of calls at the same time.

// addKeyed queues tasks of a call with idempotency keys.
func (c *Committer) addKeyed(key store.TypeKey, items []*submission) {
	switch len(items) {
	case 0:
		return
	case 1:
		c.keyed.Add(key, items[0])
		return
	}
	firsts := make([]*submission, 0, len(items))
	byName := make(map[string]*submission, len(items))
	for _, item := range items {
		if first := byName[item.Key.Name]; first != nil {
			c.keyed.AddPending(1)  // until it is queued itself
			if item.Lease != nil { // mostly it never begins, and the first one may wait for long
				item.call.unused(item)
				item.Lease = nil
			}
			first.followers = append(first.followers, item)
			continue
		}
		byName[item.Key.Name] = item
		firsts = append(firsts, item)
	}
	c.keyed.Add(key, firsts...)
}

// follow queues the followers of a submit that ended. If its key stands for a task now, they find
// it in any order. If another transaction held the key for too long, they don't wait for it again.
func (s *submission) follow(err error) {
	next := s.followers
	if len(next) == 0 {
		return
	}
	s.followers = nil
	keyed := s.call.committer.keyed
	if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		for _, item := range next {
			item.end(err)
		}
		keyed.AddPending(-len(next))
		return
	}
	if err != nil {
		next[0].followers = next[1:]
		next = next[:1]
	}
	keyed.Add(s.call.key, next...)
	keyed.AddPending(-len(next))
}
