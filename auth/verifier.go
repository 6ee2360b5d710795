package auth

import (
	"context"
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxTokenBytes is the length of the longest token that is looked at.
const MaxTokenBytes = 8 << 10

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	issuer   string
	audience string
	kinds    map[string]Kind // by typ, as of mediaSubtype
	leeway   time.Duration
	keys     keyring
	cache    *cache
}

// NewVerifier returns a Verifier of the tokens that cfg trusts. It takes
// HMACSecret or PublicKeys; PrivateKey is not used. An error is an InvalidField
// named by the field of cfg.
func NewVerifier(cfg Config) (*Verifier, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	keys, err := newKeyring(cfg)
	if err != nil {
		return nil, err
	}
	return &Verifier{
		issuer:   cfg.Issuer,
		audience: cfg.Audience,
		kinds:    cfg.kinds(),
		leeway:   cfg.Leeway,
		keys:     keys,
		cache:    newCache(maxCached),
	}, nil
}

// Verify returns the caller that token speaks for at the time now. An error is
// a CodeUnauthenticated one, and its message says which rule the token breaks.
//
// A token that was verified is remembered by its SHA-256 until it expires, so
// that its signature is checked once; a refused one is not. The memory of token
// is not kept: it may be a part of a buffer that is used again.
func (v *Verifier) Verify(ctx context.Context, token string, now time.Time) (Principal, error) {
	if token == "" {
		return Principal{}, refuse(noToken)
	}
	if len(token) > MaxTokenBytes {
		return Principal{}, refuse("the token is longer than %d bytes", MaxTokenBytes)
	}
	sum := sha256.Sum256([]byte(token))
	if p, ok := v.cache.get(sum, now); ok {
		return p, nil
	}
	return v.verifyNew(ctx, token, sum, now)
}

// verifyNew verifies a token that isn't cached, and caches it.
func (v *Verifier) verifyNew(_ context.Context, token string, sum tokenSum, now time.Time) (Principal, error) {
	c, kind, err := v.parse(token, now)
	if err != nil {
		return Principal{}, err
	}
	p, err := c.principal(kind)
	if err != nil {
		return Principal{}, err
	}
	var from time.Time
	if c.NotBefore != nil {
		from = c.NotBefore.Add(-v.leeway)
	}
	v.cache.put(sum, entry{principal: p, from: from}, now)
	return p, nil
}

// parse checks the form, the header, the signature and the registered claims
// of a token. It sets no time limit on iat, which RFC 7519 makes information.
func (v *Verifier) parse(token string, now time.Time) (*claims, Kind, error) {
	if strings.ContainsAny(token, "\r\n") { // which base64 decoders skip: one token, one spelling
		return nil, "", refuse("the token is malformed: it is not a signed JWT")
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{v.keys.method.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithIssuer(v.issuer),
		jwt.WithAudience(v.audience),
		jwt.WithLeeway(v.leeway),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	c := &claims{}
	parsed, err := parser.ParseWithClaims(token, c, v.key)
	if err != nil {
		return nil, "", v.refusal(err, parsed, c)
	}
	return c, v.kindOf(parsed), nil
}

// key checks the header of a token and returns the key to verify it with.
// The parser has checked alg.
func (v *Verifier) key(token *jwt.Token) (any, error) {
	if _, ok := token.Header["crit"]; ok {
		return nil, refuse("the token asks for an extension (header crit), and none is supported")
	}
	if v.kindOf(token) == "" {
		return nil, refuse("the token's type (header typ) is not %s", v.typs())
	}
	return v.keys.find(token.Header["kid"])
}

// kindOf returns the kind of a token by its header typ, "" for one of another typ.
func (v *Verifier) kindOf(token *jwt.Token) Kind {
	typ, _ := token.Header["typ"].(string)
	return v.kinds[mediaSubtype(typ)]
}

// typs lists the types that are accepted, that of tenants first.
func (v *Verifier) typs() string {
	quoted := map[Kind]string{}
	for typ, kind := range v.kinds {
		quoted[kind] = strconv.Quote(typ)
	}
	if quoted[KindOperator] == "" {
		return quoted[KindTenant]
	}
	return quoted[KindTenant] + " or " + quoted[KindOperator]
}
