package dispatcher

import (
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// submission is a task on its way into a batch. It shares only the context with the caller; neither
// changes it.
type submission struct {
	store.Insertion
	write  write
	result *store.Submitted
	until  time.Time // no try begins after that
	call   *submitCall
	// overtaken are earlier submits of its key, with contexts that this one replaces.
	overtaken []*submission
	// followers are later submits of its key in its call: see submit_order.go.
	followers []*submission
	ended     chan struct{} // closed by end; nil: nobody waits for it
}

func (s *submission) size() int { return len(s.Context) }

// end ends the submission of a task, which was written, or refused with an error. It is called
// once.
func (s *submission) end(err error) {
	if err != nil {
		s.result.Err = err
	}
	if s.Lease != nil && (err != nil || s.result.Existing) {
		s.call.unused(s)
	}
	s.endOvertaken()
	s.follow(s.result.Err)
	if s.ended != nil {
		close(s.ended)
	}
	s.call.done(1)
}

// submitCall waits for the tasks of one call that are of one type.
type submitCall struct {
	left    *atomic.Int32     // tasks of all types
	written chan struct{}     // closed when none is left
	came    time.Time         // the call
	read    func() error      // reads the types of the tenant anew, once
	unused  func(*submission) // gives back the capacity of a task that doesn't begin
	// committer and key queue the followers of submits.
	committer *Committer
	key       store.TypeKey
}

// done ends n submissions.
func (c *submitCall) done(n int) {
	if n > 0 && c.left.Add(-int32(n)) == 0 {
		close(c.written)
	}
}
