package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/store"
)

// revocationsEvery is how often a node looks for revoked tokens: all nodes refuse them within 5 s.
const revocationsEvery = 2 * time.Second

// This doesn't compile unless the next look makes up for one that failed, and still within 5 s.
const _ = uint(5*time.Second - 2*revocationsEvery - 1)

// revocations keeps a verifier up to date about the tokens that were revoked.
type revocations struct {
	store  *store.Store
	tokens *auth.Verifier
	log    *slog.Logger
	mark   string // of what it knows
	failed bool   // the last look failed
}

// load looks for revoked tokens.
func (r *revocations) load(ctx context.Context) error {
	all, mark, err := r.store.RevokedTokens(ctx, r.mark)
	if err != nil || mark == r.mark {
		return err
	}
	names := make([]auth.TokenName, len(all))
	for i, t := range all {
		names[i] = auth.TokenName{Issuer: t.Issuer, ID: t.ID}
	}
	r.tokens.Revoke(names)
	r.mark = mark
	return nil
}

// run looks until ctx ends. While the database is away, it knows what it knew before.
func (r *revocations) run(ctx context.Context) error {
	tick := time.NewTicker(revocationsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := r.load(ctx)
		if err != nil && ctx.Err() == nil && !r.failed {
			r.log.Warn("can't look for revoked tokens; tries again", "error", err)
		}
		r.failed = err != nil
	}
}
