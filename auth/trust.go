package auth

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/asyncflow/asyncflow"
)

// trust is the issuers that are trusted at a time, with the cache of their verified tokens. It is
// never changed, only replaced. A call that still uses a replaced one caches its token in vain.
type trust struct {
	issuers  []*trusted
	cache    *cache
	replaced chan struct{} // closed when this is replaced
}

// newTrust returns the issuers of configs. They take over from old, which may be nil, the keys that
// need not be loaded again.
func newTrust(old *trust, configs []Config) (*trust, error) {
	if len(configs) == 0 {
		return nil, &IssuerError{Err: asyncflow.InvalidField("Issuer",
			"must be set: no token is trusted")}
	}
	tr := &trust{cache: newCache(maxCached), replaced: make(chan struct{})}
	for i, c := range configs {
		t, err := old.successor(c)
		if err == nil && tr.trusted(c.Issuer) != nil {
			err = asyncflow.InvalidField("Issuer",
				"is that of another issuer too: it must be unique")
		}
		if err != nil {
			return nil, &IssuerError{Index: i, Err: err}
		}
		tr.issuers = append(tr.issuers, t)
	}
	return tr, nil
}

// successor returns the issuer of a Config: the present one if its Config is the same, else a new
// one. The new one starts with the keys of the present one if both load them from the same URL.
func (tr *trust) successor(c Config) (*trusted, error) {
	if tr == nil {
		return newTrusted(c)
	}
	before := tr.trusted(c.Issuer)
	if before != nil && before.config.equal(c) {
		return before, nil
	}
	t, err := newTrusted(c)
	if err == nil && before != nil && c.JWKSURL != "" && before.config.sameURL(c) {
		t.ring.Store(before.ring.Load())
	}
	return t, err
}

// Change replaces the issuers by the issuers of configs, which are as for NewVerifier, and reports
// whether any differs. An issuer with the same Config keeps its keys. If the Verifier was
// ready it stays ready, even if the keys of a new issuer are not loaded yet. On an error, which is
// an
// *IssuerError, nothing changes.
func (v *Verifier) Change(configs ...Config) (changed bool, err error) {
	v.change.Lock()
	defer v.change.Unlock()
	old := v.trust.Load()
	tr, err := newTrust(old, configs)
	if err != nil || tr.same(old) {
		return false, err
	}
	if old.ready() == nil {
		for _, t := range tr.issuers {
			t.optional.Store(true)
		}
	}
	v.trust.Store(tr)
	close(old.replaced)
	return true, nil
}

// same reports whether tr and old trust the same issuers.
func (tr *trust) same(old *trust) bool {
	if len(tr.issuers) != len(old.issuers) {
		return false
	}
	for i, t := range tr.issuers {
		if t != old.issuers[i] {
			return false
		}
	}
	return true
}

// Run loads keys from files and URLs and keeps them up to date until ctx ends. It logs failures and
// tries again.
func (v *Verifier) Run(ctx context.Context, log *slog.Logger) error {
	for ctx.Err() == nil {
		v.trust.Load().follow(ctx, log)
	}
	return nil
}

// follow does the work of Run until the issuers are replaced.
func (tr *trust) follow(ctx context.Context, log *slog.Logger) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var following sync.WaitGroup
	for _, t := range tr.issuers {
		if t.source != nil {
			following.Go(func() { t.source.follow(ctx, log.With("issuer", t.issuer), t.keyNames) })
		}
	}
	select {
	case <-ctx.Done():
	case <-tr.replaced:
	}
	stop()
	following.Wait()
}

// Ready returns nil once the keys of every issuer are loaded, else a CodeUnavailable error that
// names the other issuers.
func (v *Verifier) Ready() error { return v.trust.Load().ready() }

func (tr *trust) ready() error {
	var waiting []string
	var causes []error
	for _, t := range tr.issuers {
		if t.optional.Load() {
			continue
		}
		if err := t.ready(); err != nil {
			waiting = append(waiting, quoted(t.issuer))
			causes = append(causes, err)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Op: "auth.Ready",
		Err:     errors.Join(causes...),
		Message: "the keys of " + strings.Join(waiting, ", ") + " have not been loaded yet"}
}

// Stale reports, for each issuer with keys from a file or a URL, whether the last load
// failed: its keys may then be out of date.
func (v *Verifier) Stale() map[string]bool {
	stale := map[string]bool{}
	for _, t := range v.trust.Load().issuers {
		if t.source != nil {
			stale[t.issuer] = t.source.failed()
		}
	}
	return stale
}
