package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/asyncflow/asyncflow"
)

// MaxTokenBytes bounds the length of a token, in bytes.
const MaxTokenBytes = 8 << 10

// Verifier verifies the tokens of one or more issuers. It is safe for concurrent use.
type Verifier struct {
	change sync.Mutex // held while trust is replaced
	trust  atomic.Pointer[trust]

	revoked revocations
}

// NewVerifier returns a Verifier of the tokens that the configs trust; there is one config for each
// issuer. PrivateKey is not used. It reads PublicKeysFile and HMACSecretFile, but doesn't wait for
// a JWKSURL: see Run and Ready. An error is an *IssuerError.
func NewVerifier(configs ...Config) (*Verifier, error) {
	tr, err := newTrust(nil, configs)
	if err != nil {
		return nil, err
	}
	v := &Verifier{}
	v.trust.Store(tr)
	return v, nil
}

// IssuerError is the error of a config that can't be used. Err is an InvalidField that names the
// field of Config.
type IssuerError struct {
	Index int
	Err   error
}

func (e *IssuerError) Error() string { return e.Err.Error() }
func (e *IssuerError) Unwrap() error { return e.Err }

// Verify returns the caller that a token names, if the token is valid at the time now, and isn't
// revoked: see Revoke. An error is
// CodeUnauthenticated and says which rule the token breaks, or CodeUnavailable while the keys of
// its issuer are not loaded.
//
// For a token with an unknown key, Verify may wait some seconds, or until ctx ends, for the
// issuer's keys to be loaded again.
//
// A verified token is cached by its SHA-256 until it expires, or its key or issuer is gone, so that
// its signature is checked once. A refused token is not cached. Verify doesn't keep the memory of
// token, which may be part of a buffer that is reused.
func (v *Verifier) Verify(ctx context.Context, token string, now time.Time) (Principal, error) {
	if token == "" {
		return Principal{}, refuse(noToken)
	}
	if len(token) > MaxTokenBytes {
		return Principal{}, refuse("the token is longer than %d bytes", MaxTokenBytes)
	}
	sum := sha256.Sum256([]byte(token))
	tr := v.trust.Load()
	p, ok := tr.cache.get(sum, now)
	if !ok {
		var err error
		if p, err = tr.verifyNew(ctx, token, sum, now); err != nil {
			return Principal{}, err
		}
	}
	if v.revoked.has(p.name()) {
		return Principal{}, errRevoked
	}
	return p, nil
}

// verifyNew verifies a token that isn't cached, and caches it.
func (tr *trust) verifyNew(
	ctx context.Context, token string, sum tokenSum, now time.Time,
) (Principal, error) {
	// base64 decoders would skip them; there is one spelling of a token
	if strings.ContainsAny(token, "\r\n") {
		return Principal{}, refuse(malformed)
	}
	t, err := tr.issuerOf(token)
	if err != nil {
		return Principal{}, err
	}
	c, kind, mark, err := t.parse(ctx, token, now)
	if err != nil {
		return Principal{}, err
	}
	p, err := c.principal(kind)
	if err != nil {
		return Principal{}, err
	}
	var from time.Time
	if c.NotBefore != nil {
		from = c.NotBefore.Add(-t.leeway)
	}
	tr.cache.put(sum, entry{principal: p, from: from, issuer: t, key: mark}, now)
	return p, nil
}

// issuerOf returns the issuer that a token names. That only picks the keys and rules for the check,
// which includes the issuer.
func (tr *trust) issuerOf(token string) (*trusted, error) {
	if len(tr.issuers) == 1 {
		return tr.issuers[0], nil
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, refuse(malformed)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil {
		return nil, refuse(malformed)
	}
	var members map[string]json.RawMessage // a struct would also accept names in other case
	var issuer string
	if json.Unmarshal(text, &members) != nil ||
		(members["iss"] != nil && json.Unmarshal(members["iss"], &issuer) != nil) {
		return nil, refuse("the token's claims are not of the right form")
	}
	if t := tr.trusted(issuer); t != nil {
		return t, nil
	}
	return nil, refuse("the token's issuer (claim iss) is not trusted here")
}

// trusted returns the issuer with a name; nil if there is none.
func (tr *trust) trusted(issuer string) *trusted {
	for _, t := range tr.issuers {
		if t.issuer == issuer {
			return t
		}
	}
	return nil
}

// Bearer returns the token in the value of an Authorization header (RFC 6750, section 2.1). The
// case of the scheme doesn't matter. An error is CodeUnauthenticated.
func Bearer(header string) (string, error) {
	header = strings.Trim(header, " \t")
	if header == "" {
		return "", refuse(noToken)
	}
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimLeft(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" ||
		strings.ContainsAny(token, " \t\r\n,") {
		return "", refuse("the Authorization header is not of the form: Bearer <token>")
	}
	return token, nil
}

const (
	noToken   = "no token: send Authorization: Bearer <token>"
	malformed = "the token is malformed: it is not a signed JWT"
)

// refuse returns a CodeUnauthenticated error. Its message tells the caller which rule was broken,
// and quotes nothing of a token.
func refuse(format string, args ...any) error {
	return asyncflow.Errorf(asyncflow.CodeUnauthenticated, format, args...)
}

// refusal turns an error of the parser into plain words. token and c are what the parser had read;
// token may be nil. It returns an error of our own unchanged.
func (t *trusted) refusal(err error, token *jwt.Token, c *claims) error {
	var own *asyncflow.Error
	if errors.As(err, &own) {
		return own
	}
	message := ""
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		message = malformed
	case token == nil || token.Method == nil || token.Method.Alg() != t.method.Alg():
		message = "the token's algorithm is not " + t.method.Alg()
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		message = "the token's signature doesn't verify"
	default:
		message = t.claimsRefusal(err, c)
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnauthenticated, Op: "auth.Verify",
		Message: message, Err: err}
}

// claimsRefusal names the first rule that correctly signed claims break.
func (t *trusted) claimsRefusal(err error, c *claims) string {
	switch {
	case c.ExpiresAt == nil:
		return "the token has no expiry: the claim exp is required"
	case errors.Is(err, jwt.ErrTokenExpired):
		return "the token has expired at " + c.ExpiresAt.UTC().Format(time.RFC3339)
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return "the token is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	case c.Issuer != t.issuer:
		return fmt.Sprintf("the token's issuer is not %q", t.issuer)
	case errors.Is(err, jwt.ErrTokenInvalidAudience),
		errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return fmt.Sprintf("the token's audience is not %q", t.audience)
	default:
		return "the token's claims are not valid"
	}
}
