package dispatcher

import (
	"context"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// replacedKey is an idempotency key of submits that replace the task with that key, by callers who
// may replace the same tasks.
type replacedKey struct {
	store.TypeKey
	name     string
	operates bool // see asyncflow.Replace
}

// addReplacing queues submits of a type that replace the tasks with their keys. The submits of a
// key are queued together.
func (c *Committer) addReplacing(key store.TypeKey, items []*submission) {
	byKey := map[replacedKey][]*submission{}
	for _, item := range items {
		k := replacedKey{key, item.Key.Name, item.Key.Replace.Operates}
		byKey[k] = append(byKey[k], item)
	}
	for k, items := range byKey {
		c.replaced.Add(k, items...)
	}
}

// replaceOnce writes one of the submits of a key that came together: the last one, as each replaces
// the one before. It returns when that is answered, so that the next ones gather meanwhile: a key
// that comes 1,000 times a second takes 100 writes a second of a node.
func (c *Committer) replaceOnce(_ context.Context, key replacedKey, items []*submission) {
	last := items[len(items)-1]
	last.overtaken = items[:len(items)-1]
	last.ended = make(chan struct{})
	for _, s := range last.overtaken {
		if s.Key.Replace.OnlyReplaces == nil {
			last.Key.Replace.OnlyReplaces = nil
		}
	}
	if len(items) > 1 {
		c.gather(key.TypeKey, items)
	}
	c.replacing.Add(key.TypeKey, last)
	<-last.ended
}

// gather gives the last of the submits of a key that came together what the task takes from the
// others: the options of the first one, and the latest priority, lifetime and claim rules among
// them. If it makes a task, that goes in line: its lease may not fit these.
func (c *Committer) gather(key store.TypeKey, items []*submission) {
	first := items[0]
	last := items[len(items)-1]
	if last.Lease != nil {
		last.call.unused(last)
		last.Lease = nil
	}
	how := last.Key.Replace
	due := how.Due(first.Created, last.Created)
	for _, s := range slices.Backward(items[:len(items)-1]) {
		how.Complete(s.Key.Replace, due)
	}
	last.Options = first.Options
	last.Options.Priority = how.Priority
	last.Options.Claim = how.Claim
	if last.Verdict.Reason == asyncflow.WaitClaimer {
		last.Verdict.Claim = how.Claim
	}
	last.FlowKey = first.FlowKey
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil { // the insert fails with it
		return
	}
	last.Options.Lifetime = t.Lifetime(&asyncflow.NewTask{StartBy: how.StartBy, EndBy: how.EndBy,
		RunAt: how.RunAt, Delay: asyncflow.NewDuration(how.Delay)}, last.Created)
	if how.Delay == 0 && !how.RunAt.After(last.Created) {
		last.Verdict.OrderTime = asyncflow.EnterOrder(t.TaskType, 0, last.Options, last.Created)
		last.result.OrderTime = last.Verdict.OrderTime
	}
}

// endReplaced answers the caller with the existing task of this context.
func (s *submission) endReplaced() {
	r := s.Key.Replaced
	s.result.ID = r.ID
	s.result.Existing = true
	s.result.Replaced = true
	s.result.Stage = r.Stage
	s.result.Status = r.Status
	s.result.OrderTime = r.OrderTime
	s.result.CreatedAt = r.CreatedAt
	s.end(nil)
}

// endOvertaken answers the callers of earlier submits of the key with the task that the last one
// made or changed. If it made one, the first submit is told so, and the others that they replaced
// its context.
func (s *submission) endOvertaken() {
	made := s.result.Err == nil && !s.result.Existing
	for i, earlier := range s.overtaken {
		*earlier.result = *s.result
		if made {
			earlier.result.Existing = i > 0
			earlier.result.Replaced = i > 0
		}
		if earlier.Lease != nil {
			earlier.call.unused(earlier)
		}
		earlier.call.done(1)
	}
	if made && len(s.overtaken) > 0 {
		s.result.Existing = true
		s.result.Replaced = true
	}
}
