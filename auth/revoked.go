package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
)

// TokenName names a token: its claims iss and jti.
type TokenName struct{ Issuer, ID string }

// name returns the name of the token of p.
func (p Principal) name() TokenName { return TokenName{p.Issuer, p.TokenID} }

// revocations are the tokens that are refused before they expire, and who wants to know of them.
type revocations struct {
	tokens atomic.Pointer[map[TokenName]bool]

	mu sync.Mutex // guards what follows, and writes of tokens
	// followers holds the contexts that end with a token.
	followers map[TokenName]map[*context.CancelCauseFunc]bool
}

// has reports whether a token is revoked. A token without an id never is.
func (r *revocations) has(name TokenName) bool {
	tokens := r.tokens.Load()
	return tokens != nil && name.ID != "" && (*tokens)[name]
}

// Revoke makes the Verifier refuse the given tokens, and no others that were given before. It ends
// the contexts of FollowToken that belong to them.
func (v *Verifier) Revoke(names []TokenName) {
	tokens := make(map[TokenName]bool, len(names))
	for _, name := range names {
		tokens[name] = true
	}
	v.revoked.mu.Lock()
	defer v.revoked.mu.Unlock()
	v.revoked.tokens.Store(&tokens)
	for name, followers := range v.revoked.followers {
		if !tokens[name] {
			continue
		}
		for end := range followers {
			(*end)(errRevoked)
		}
	}
}

// errRevoked is the refusal of a revoked token.
var errRevoked = refuse("the token was revoked")

// FollowToken returns a context that ends when the token of p is revoked, or with ctx. Its cause is
// the refusal of the token then. The caller must call end.
func (v *Verifier) FollowToken(
	ctx context.Context, p Principal,
) (_ context.Context, end context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	name := p.name()
	if name.ID == "" {
		return ctx, func() { cancel(nil) }
	}
	r := &v.revoked
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has(name) {
		cancel(errRevoked)
	}
	if r.followers == nil {
		r.followers = map[TokenName]map[*context.CancelCauseFunc]bool{}
	}
	if r.followers[name] == nil {
		r.followers[name] = map[*context.CancelCauseFunc]bool{}
	}
	follower := &cancel
	r.followers[name][follower] = true
	return ctx, sync.OnceFunc(func() {
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.followers[name], follower)
		if len(r.followers[name]) == 0 {
			delete(r.followers, name)
		}
	})
}

// Revoked returns the refusal of a context of FollowToken if it ended with its token; nil: it
// didn't.
func Revoked(ctx context.Context) error {
	if context.Cause(ctx) == errRevoked {
		return errRevoked
	}
	return nil
}

// Described is what a token says of itself. What isn't in the form of tokens of ours is left out.
type Described struct {
	TokenName
	Tenant    string
	Subject   string
	Scopes    string
	Limits    ClaimLimits
	ExpiresAt time.Time
}

// Describe returns what a token says of itself, without verifying it: anybody can write that. A
// token without the claims iss, jti and exp can't be named: then the error is a refusal. Others may
// be of any form: its issuer need not name tenants and scopes as we do.
func Describe(token string) (d Described, err error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(token) > MaxTokenBytes || len(parts) != 3 {
		return d, refuse(malformed)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var raw map[string]json.RawMessage
	if err != nil || json.Unmarshal(payload, &raw) != nil {
		return d, refuse(malformed)
	}
	var expires date
	for name, into := range map[string]any{"iss": &d.Issuer, "jti": &d.ID, "exp": &expires} {
		if raw[name] != nil && json.Unmarshal(raw[name], into) != nil {
			return Described{}, refuse("the token's claim %s is not of the right form", name)
		}
	}
	if d.Issuer == "" || d.ID == "" || expires.NumericDate == nil {
		return Described{}, refuse("the token lacks the claim iss, jti or exp")
	}
	d.ID = asyncflow.AuditText(d.ID, asyncflow.MaxAuditText)
	d.ExpiresAt = expires.UTC()
	_ = json.Unmarshal(raw["tenant"], &d.Tenant)
	_ = json.Unmarshal(raw["sub"], &d.Subject)
	var scopes scopeList
	_ = json.Unmarshal(raw["scope"], &scopes)
	d.Scopes = strings.Join(scopes, " ")
	for name, into := range map[string]any{"claimers": &d.Limits.Claimers,
		"claims_labels": &d.Limits.Labels, "claims_types": &d.Limits.Stages} {
		if raw[name] != nil {
			_ = json.Unmarshal(raw[name], into)
		}
	}
	return d, nil
}
