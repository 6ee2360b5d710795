package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/claimed"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// stageListener claims the deliveries of a stage and forwards them.
type stageListener struct {
	*listener
	stage listenStage
	held  *claimed.Set
	done  sync.WaitGroup
}

// newStageListener returns a listener with most open claims.
func newStageListener(l *listener, s listenStage, most int) *stageListener {
	return &stageListener{listener: l, stage: s, held: claimed.New(most, l.isOpen, func() {
		l.out.problem("your worker has accepted %d tasks of %s that go on: no more are claimed "+
			"until one of them ends", most, s)
	})}
}

// isOpen reports whether a claim with a worker that will report is still open.
func (l *listener) isOpen(ctx context.Context, id, token string) bool {
	return l.reporter.Open(ctx, l.callback(id, token))
}

// callback returns where to report on a claim: at the server that this program knows.
func (l *listener) callback(id, token string) sdk.Callback {
	return sdk.Callback{URL: l.client.URL() + "/v1/callbacks/" + id, Token: token}
}

// run claims until ctx ends. What is under way then gets until work ends. An error calls stop,
// which ends the other stages.
func (s *stageListener) run(ctx, work context.Context, stop func()) error {
	defer s.done.Wait()
	defer stop()
	healthy := false
	for try := 0; ctx.Err() == nil; {
		if (!healthy || s.down.open()) && !s.awaitWorker(ctx) {
			return nil
		}
		healthy = true
		room := s.held.WaitForCapacity(ctx, listenAtOnce)
		if room == 0 {
			return nil
		}
		waiting := s.waiting()
		all, err := s.client.ClaimSigned(waiting, s.ask(room, try == 0))
		switch {
		case err == nil:
			try = 0
			s.found()
			s.begin(work, all)
		case ctx.Err() != nil:
			return nil
		case waiting.Err() != nil: // the machine slept
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

// ask returns the next call, for most tasks. After a failure it doesn't wait for one: its answer
// shows that the connection is back.
func (s *stageListener) ask(most int, wait bool) client.ClaimRequest {
	r := client.ClaimRequest{Type: s.stage.taskType, Stage: s.stage.name, Claimer: s.claimer,
		Labels: s.labels, Max: most, Held: s.held.IDs()}
	if wait {
		r.Wait = asyncflow.NewDuration(listenWait)
	}
	return r
}

// begin begins to forward deliveries, apart from the ones under way.
func (s *stageListener) begin(work context.Context, all []client.SignedDelivery) {
	for _, d := range all {
		if !s.held.Take(d.TaskID, d.Seq) {
			continue
		}
		s.done.Go(func() {
			if s.forward(work, d) {
				s.held.Later(d.TaskID, d.Callback.Token)
			} else {
				s.held.End(d.TaskID)
			}
		})
	}
}

// callWithRetries makes a call about a claim until it gets an answer. It returns false if the claim
// or ctx is over: then the task comes again.
func (s *stageListener) callWithRetries(ctx context.Context, call func() error) bool {
	for try := 0; ; try++ {
		err := call()
		if err == nil {
			s.found()
			return true
		}
		if ctx.Err() != nil || isClaimOver(err) {
			return false
		}
		s.lost(err)
		if !pause(ctx, try) {
			return false
		}
	}
}

// isClaimOver reports whether the claim of a report is over, or the report was refused for good.
func isClaimOver(err error) bool {
	return errors.Is(err, sdk.ErrLost) || errors.Is(err, sdk.ErrCancelled) || !isOutage(err)
}
