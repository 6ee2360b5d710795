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
	"github.com/asyncflow/asyncflow/internal/sleep"
)

const (
	loadTimeout = 10 * time.Second // of one load from a file or URL
	askTimeout  = 3 * time.Second  // how long a token waits for its key to be loaded

	maxKeysBytes = 256 << 10 // of a file or a fetched key set

	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
	repeatAfter = 10 * time.Minute // the same failure is logged again
)

// source is a file or a URL that the keys of an issuer are loaded from. If a load fails, the
// present keys stay.
type source struct {
	from  string // the file or the URL, for people
	every time.Duration
	rest  time.Duration // the least time between two loads that unknown keys cause
	limit time.Duration // of one load, slow senders included
	read  func(context.Context) ([]byte, error)
	use   func(text []byte) error // replaces the keys

	flight singleflight.Group // one load at a time

	mu      sync.Mutex
	text    []byte    // the text of the keys in use; nil: none yet
	begun   time.Time // when the last load began
	loading bool      // a load is under way, or about to begin
	failure error     // of the last load; nil if it succeeded
}

// load loads the keys once; concurrent callers share the load. It stops waiting when ctx ends, but
// the load goes on until its own timeout.
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
	s.failure = err
	if err != nil {
		return err
	}
	s.text = text
	return nil
}

// current returns the text of the keys in use; nil: none yet.
func (s *source) current() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// ask loads the keys for a token with an unknown key, unless they were loaded a short time ago:
// callers who invent key ids must not make us flood the issuer. It reports whether the keys were
// loaded.
func (s *source) ask(ctx context.Context) bool {
	if !s.mayLoad() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.load(ctx) == nil
}

// mayLoad reports whether the caller may begin a load, or join the one under way.
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

// follow loads the keys repeatedly until ctx ends, sooner after a failure. It logs changed keys,
// and each failure once.
func (s *source) follow(ctx context.Context, log *slog.Logger, ids func() []string) {
	log = log.With("from", s.from)
	var seen []byte
	var said string
	var saidAt time.Time
	for failures := 0; ; sleep.For(ctx, s.pause(failures)) {
		err := s.load(ctx)
		if ctx.Err() != nil {
			return
		}
		if now := s.current(); !bytes.Equal(now, seen) || (err == nil && failures > 0) {
			log.Info("the keys of an issuer are loaded", "keys", ids())
			seen = now
		}
		if err != nil {
			failures++
			if text := err.Error(); text != said || time.Since(saidAt) > repeatAfter {
				log.Warn("the keys of an issuer can't be loaded; those of before stay",
					"error", text, "keys", ids())
				said, saidAt = text, time.Now()
			}
			continue
		}
		failures, said = 0, ""
	}
}

// pause returns how long to wait after a number of failures in a row. It is jittered, so that nodes
// that were started together don't load together.
func (s *source) pause(failures int) time.Duration {
	wait := s.every
	if failures > 0 {
		wait = min(wait, lastRetry, firstRetry<<min(failures-1, 10))
	}
	return wait - time.Duration(rand.Int64N(int64(wait)/5+1))
}

// failed reports whether the last load failed.
func (s *source) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure != nil
}

// missing returns nil once keys are loaded, else a CodeUnavailable error.
func (s *source) missing(issuer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Op: "auth.Ready", Err: s.failure,
		Message: "the keys of the issuer " + quoted(issuer) + " have not been loaded yet"}
}
