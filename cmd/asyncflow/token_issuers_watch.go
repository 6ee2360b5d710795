package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/auth"
)

// issuersWatch updates a Verifier when the issuers file changes. A file that can't be used
// changes nothing.
type issuersWatch struct {
	flags  jwtFlags
	env    lookup
	tokens *auth.Verifier
	log    *slog.Logger

	mu     sync.Mutex
	reason string // why the file can't be used; "": it can
}

// Run reads the file, and the files that it names, every 5 s until ctx ends.
func (w *issuersWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(auth.DefaultFileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.runOnce()
		}
	}
}

// runOnce reads the file once. It logs the same error only once.
func (w *issuersWatch) runOnce() {
	changed, err := w.reread()
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	w.mu.Lock()
	before := w.reason
	w.reason = reason
	w.mu.Unlock()
	switch {
	case reason != "" && reason != before:
		w.log.Warn("the issuers file can't be used; the old issuers stay", "error", reason)
	case changed:
		w.log.Info("the issuers of tokens have changed", "from", w.flags.JWTIssuersFile)
	case reason == "" && before != "":
		w.log.Info("the issuers file can be used again", "from", w.flags.JWTIssuersFile)
	}
}

func (w *issuersWatch) reread() (changed bool, err error) {
	configs, err := w.flags.configs(w.env)
	if err != nil {
		return false, err
	}
	changed, err = w.tokens.Change(configs...)
	return changed, w.flags.explain(err)
}

// Stale reports whether the file can't be used as it is.
func (w *issuersWatch) Stale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason != ""
}
