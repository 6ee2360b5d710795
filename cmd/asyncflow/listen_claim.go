package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// stageListener claims the deliveries of a stage and forwards them.
type stageListener struct {
	*listener
	stage listenStage
	slots chan struct{} // one for each delivery under way
	done  sync.WaitGroup

	held     map[string]int // the seqs of the tasks under way, and of those in accepted
	accepted []string       // tasks that the worker will report on, the latest last
}

func newStageListener(l *listener, s listenStage) *stageListener {
	return &stageListener{listener: l, stage: s, slots: make(chan struct{}, listenAtOnce),
		held: map[string]int{}}
}

// run claims until ctx ends. What is under way then has until work ends. An error calls stop, which
// ends the other stages.
func (s *stageListener) run(ctx, work context.Context, stop func()) error {
	defer s.done.Wait()
	defer stop()
	healthy := false
	for try := 0; ctx.Err() == nil; {
		if (!healthy || s.down.open()) && !s.awaitWorker(ctx) {
			return nil
		}
		healthy = true
		select {
		case s.slots <- struct{}{}: // waits for room
			<-s.slots
		case <-ctx.Done():
			return nil
		}
		waiting := s.waiting()
		all, err := s.client.ClaimSigned(waiting, s.ask(try == 0))
		switch {
		case err == nil:
			try = 0
			s.found()
			s.begin(work, all)
		case ctx.Err() != nil:
			return nil
		case waiting.Err() != nil: // the machine has slept
			try = 1
		case !isOutage(err):
			return fmt.Errorf("listening to %s: %w", s.stage, err)
		default:
			s.lost(err)
			if !pause(ctx, try) {
				return nil
			}
			try++
		}
	}
	return nil
}

// ask returns the next call. After a failure it doesn't wait for a task: its answer shows that the
// connection is back.
func (s *stageListener) ask(wait bool) client.ClaimRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := client.ClaimRequest{Type: s.stage.taskType, Stage: s.stage.name, Claimer: s.claimer,
		Max: listenAtOnce - len(s.slots)}
	for len(s.held) > asyncflow.MaxOpenClaims {
		s.forget(s.accepted[0])
	}
	for id := range s.held {
		r.Held = append(r.Held, id)
	}
	if wait {
		r.Wait = asyncflow.Duration(listenWait)
	}
	return r
}

// begin begins to forward deliveries, apart from those that are under way.
func (s *stageListener) begin(work context.Context, all []client.SignedDelivery) {
	for _, d := range all {
		s.mu.Lock()
		seq, known := s.held[d.TaskID]
		if known && seq != d.Seq && slices.Contains(s.accepted, d.TaskID) { // another attempt
			s.forget(d.TaskID)
			known = false
		}
		if !known {
			s.held[d.TaskID] = d.Seq
		}
		s.mu.Unlock()
		if known {
			continue
		}
		s.slots <- struct{}{}
		s.done.Go(func() {
			defer func() { <-s.slots }()
			later := s.forward(work, d)
			s.mu.Lock()
			defer s.mu.Unlock()
			if later {
				s.accepted = append(s.accepted, d.TaskID)
			} else {
				s.forget(d.TaskID)
			}
		})
	}
}

// forget drops a task. The caller has locked mu.
func (s *stageListener) forget(id string) {
	delete(s.held, id)
	s.accepted = slices.DeleteFunc(s.accepted, func(other string) bool { return other == id })
}

// patiently makes a call about a claim until it has an answer. It returns false if the claim is
// over, or ctx has ended: then the task comes again.
func (s *stageListener) patiently(ctx context.Context, call func() error) bool {
	for try := 0; ; try++ {
		err := call()
		if err == nil {
			s.found()
			return true
		}
		if ctx.Err() != nil || over(err) {
			return false
		}
		s.lost(err)
		if !pause(ctx, try) {
			return false
		}
	}
}

// over reports whether the claim of a report is over, or the report was refused for good.
func over(err error) bool {
	return errors.Is(err, sdk.ErrLost) || errors.Is(err, sdk.ErrCancelled) || !isOutage(err)
}
