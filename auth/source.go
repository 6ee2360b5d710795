package auth

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/asyncflow/asyncflow"
)

const (
	loadTimeout = 10 * time.Second // of one look at a file or URL
	askTimeout  = 3 * time.Second  // how long a token waits for its key to be looked for

	maxKeysBytes = 256 << 10 // of a file or a fetched key set

	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
	repeatAfter = 10 * time.Minute // the same failure is logged again
)

// source is where the keys of an issuer come from when they may change: a file or a
// URL. What can't be read or used changes nothing: the keys of before stay.
type source struct {
	place string // the file or the URL, for people
	every time.Duration
	rest  time.Duration // the least time between two loads that tokens ask for
	limit time.Duration // of one load, slow senders included
	read  func(context.Context) ([]byte, error)
	use   func(text []byte) error // takes the keys over

	flight singleflight.Group // one load at a time

	mu      sync.Mutex
	text    []byte    // what is in use; nil: nothing yet
	begun   time.Time // the last load
	loading bool      // one is under way, or about to be
	failure error     // of the last load; nil after a good one
}

// load reads the keys once, together with whoever else wants them now. It gives up
// waiting when ctx ends; the load itself goes on to its own timeout.
func (s *source) load(ctx context.Context) error {
	done := s.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
		defer cancel()
		return nil, s.loadOnce(ctx)
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *source) loadOnce(ctx context.Context) error {
	s.mu.Lock()
	s.begun, s.loading = time.Now(), true
	before := s.text
	s.mu.Unlock()
	text, err := s.read(ctx)
	if err == nil && (before == nil || !bytes.Equal(text, before)) {
		err = s.use(text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loading = false
	if s.failure = err; err == nil {
		s.text = text
	}
	return err
}

// current returns what is in use, nil if there is nothing yet.
func (s *source) current() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// ask loads the keys for a token whose key isn't known, unless that was done a short
// while ago: who makes up key ids must not make us a nuisance to the issuer. It tells
// whether there has been a load.
func (s *source) ask(ctx context.Context) bool {
	if !s.mayLoad() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.load(ctx) == nil
}

// mayLoad takes the right to begin a load, or to join the one under way.
func (s *source) mayLoad() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loading {
		return true
	}
	if time.Since(s.begun) < s.rest {
		return false
	}
	s.begun, s.loading = time.Now(), true
	return true
}

// follow loads the keys again and again until ctx ends. After a failure it comes back
// sooner. It says when keys have changed, and a failure once.
func (s *source) follow(ctx context.Context, log *slog.Logger, ids func() []string) {
	log = log.With("from", s.place)
	var seen []byte
	var said string
	var saidAt time.Time
	for failures := 0; ; {
		err := s.load(ctx)
		if ctx.Err() != nil {
			return
		}
		if now := s.current(); !bytes.Equal(now, seen) || (err == nil && failures > 0) {
			log.Info("the keys of an issuer are loaded", "keys", ids())
			seen = now
		}
		if err == nil {
			failures, said = 0, ""
		} else {
			failures++
			if text := err.Error(); text != said || time.Since(saidAt) > repeatAfter {
				log.Warn("the keys of an issuer can't be loaded; those of before stay", "error", text, "keys", ids())
				said, saidAt = text, time.Now()
			}
		}
		sleep(ctx, s.pause(failures))
	}
}

// pause returns how long to wait after so many failures in a row, with jitter, so that
// nodes started together don't come together.
func (s *source) pause(failures int) time.Duration {
	wait := s.every
	if failures > 0 {
		wait = min(wait, lastRetry, firstRetry<<min(failures-1, 10))
	}
	return wait - time.Duration(rand.Int64N(int64(wait)/5+1))
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// failed tells whether the last load failed.
func (s *source) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure != nil
}

// missing returns nil once keys have been loaded, else why not.
func (s *source) missing(issuer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Op: "auth.Ready", Err: s.failure,
		Message: "the keys of the issuer " + quoted(issuer) + " have not been loaded yet"}
}
