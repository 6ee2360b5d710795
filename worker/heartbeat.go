package worker

import (
	"context"
	"errors"
	"time"
)

const (
	maxHeartbeat = 30 * time.Second // the longest default interval
	beatTimeout  = 10 * time.Second
	// lateReports is how long after the deadline a result is still reported. It counts until
	// another attempt starts, such as after asyncflow was away.
	lateReports = time.Minute
)

// heartbeats sends heartbeats until the run is over. It cancels the handler's context when
// asyncflow says that the attempt is over, or at the deadline. When lateReports are over as well,
// it ends the calls, too.
func (r *run) heartbeats() {
	interval := r.worker.heartbeat(time.Until(r.until))
	beats := time.NewTicker(interval)
	defer beats.Stop()
	end := time.NewTimer(time.Until(r.until))
	defer end.Stop()
	offset := r.until.Sub(r.delivery.Deadline)
	answered, late := r.exchange.sent, false
	for {
		select {
		case <-r.over:
			return
		case <-answered: // a broken connection may mean that the attempt is over
			if answered = nil; !r.exchange.broken {
				continue
			}
		case <-r.doubted:
		case <-beats.C:
		case <-end.C:
			if late {
				r.endCall()
				return
			}
			late = true
			r.cancel(ErrLost)
			end.Reset(lateReports)
			continue
		}
		deadline, err := r.sendHeartbeat(interval)
		switch {
		case errors.Is(err, ErrCancelled), errors.Is(err, ErrLost):
			r.cancel(causeOf(err))
			beats.Stop()
			answered = nil
		case err != nil:
			r.log.Warn("no heartbeat", "error", err)
		default:
			late = false
			end.Reset(time.Until(deadline.Add(offset)))
		}
	}
}

func (r *run) sendHeartbeat(most time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(r.calls, min(most, beatTimeout))
	defer cancel()
	return r.worker.reporter.Heartbeat(ctx, r.delivery.Callback)
}

// askNow makes a heartbeat go out now.
func (r *run) askNow() {
	select {
	case r.doubted <- struct{}{}:
	default:
	}
}

func causeOf(err error) error {
	if errors.Is(err, ErrCancelled) {
		return ErrCancelled
	}
	return ErrLost
}

// heartbeat returns the interval of heartbeats for a delivery with some time left.
func (w *Worker) heartbeat(left time.Duration) time.Duration {
	if w.cfg.Heartbeat > 0 {
		return w.cfg.Heartbeat
	}
	return max(min(left/3, maxHeartbeat), 100*time.Millisecond)
}

// joinContexts returns a context that ends at the end of the contexts of all runs.
func joinContexts(runs []*run) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(runs[0].ctx))
	go func() {
		for _, r := range runs {
			select {
			case <-r.ctx.Done():
			case <-ctx.Done():
				return
			}
		}
		cancel(context.Cause(runs[0].ctx))
	}()
	return ctx, func() { cancel(nil) }
}
