package auth

import (
	"cmp"
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/asyncflow/asyncflow"
)

// trusted is an issuer of accepted tokens, with its keys and rules.
type trusted struct {
	issuer   string
	audience string
	kinds    map[string]Kind // by typ, as of mediaSubtype
	leeway   time.Duration
	claims   claimRules
	method   jwt.SigningMethod // the only one, also of keys that are loaded later
	ring     atomic.Pointer[keyring]
	source   *source // nil: the keys are fixed

	config   Config
	optional atomic.Bool // only its own callers wait for its keys, Ready doesn't
}

// newTrusted returns the issuer of a Config. Keys that are given, or are in a file, must be good
// already. Keys at a URL are loaded later.
func newTrusted(c Config) (*trusted, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	t := &trusted{
		config:   c,
		issuer:   c.Issuer,
		audience: c.Audience,
		kinds:    c.kinds(),
		leeway:   c.Leeway,
		claims:   c.claimRules(),
		method:   methodNamed(c.Algorithm),
	}
	switch {
	case len(c.HMACSecret) > 0:
		t.method = jwt.SigningMethodHS256
		t.ring.Store(newSecrets(c.HMACSecret))
	case c.HMACSecretFile != "":
		t.method = jwt.SigningMethodHS256
		if err := t.followFile(c.HMACSecretFile, t.useSecrets); err != nil {
			return nil, asyncflow.InvalidField("HMACSecretFile", "can't be used: %v", err)
		}
	case len(c.PublicKeys) > 0:
		if err := t.useKeys(c.PublicKeys); err != nil {
			return nil, asyncflow.InvalidField("PublicKeys", "can't be used: %v", err)
		}
	case c.PublicKeysFile != "":
		if err := t.followFile(c.PublicKeysFile, t.useKeys); err != nil {
			return nil, asyncflow.InvalidField("PublicKeysFile", "can't be used: %v", err)
		}
	case c.JWKSURL != "":
		t.source = &source{
			from:  withoutQuery(c.JWKSURL),
			every: cmp.Or(c.Interval, DefaultURLInterval),
			rest:  10 * time.Second,
			limit: loadTimeout,
			read:  fetcher(c),
			use:   t.useKeySet,
		}
	default:
		return nil, asyncflow.InvalidField("PublicKeys",
			"must be set, or a secret: there is no key to verify with")
	}
	return t, nil
}

// followFile makes a file the source of the keys, and loads them once.
func (t *trusted) followFile(name string, use func(text []byte) error) error {
	t.source = &source{
		from:  name,
		every: cmp.Or(t.config.Interval, DefaultFileInterval),
		rest:  time.Second,
		limit: loadTimeout,
		read:  fileReader(name),
		use:   use,
	}
	return t.source.load(context.Background())
}

// useKeys replaces the public keys. The new ones must be of the algorithm of the first ones: to
// change the algorithm is the operator's decision, not the file's or the issuer's.
func (t *trusted) useKeys(text []byte) error {
	algorithm := ""
	if t.method != nil {
		algorithm = t.method.Alg()
	}
	keys, named, err := parseKeys(text, algorithm)
	if err != nil {
		return err
	}
	t.put(keys, named)
	return nil
}

// useKeySet is useKeys for a text that must be a JWK Set.
func (t *trusted) useKeySet(text []byte) error {
	keys, err := parseJWKS(text, t.method.Alg())
	if err != nil {
		return err
	}
	t.put(keys, true)
	return nil
}

// useSecrets replaces the secrets.
func (t *trusted) useSecrets(text []byte) error {
	secrets, err := parseSecrets(text)
	if err != nil {
		return err
	}
	t.ring.Store(newSecrets(secrets...))
	return nil
}

func (t *trusted) put(keys []publicKey, named bool) {
	if t.method == nil { // only the first time, before any other goroutine reads it
		t.method = keys[0].method
	}
	t.ring.Store(newKeyring(keys, named))
}

// ready returns nil once there are keys of the issuer, else a CodeUnavailable error.
func (t *trusted) ready() error {
	if t.ring.Load() != nil {
		return nil
	}
	return t.source.missing(t.issuer)
}

// parse checks the form, the header, the signature and the registered claims of a token. It doesn't
// check iat, which RFC 7519 defines as information only.
func (t *trusted) parse(
	ctx context.Context, token string, now time.Time,
) (*claims, Kind, keyMark, error) {
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{t.method.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithIssuer(t.issuer),
		jwt.WithAudience(t.audience),
		jwt.WithLeeway(t.leeway),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	c := &claims{rules: &t.claims}
	var mark keyMark
	parsed, err := parser.ParseWithClaims(token, c, func(token *jwt.Token) (key any, err error) {
		key, mark, err = t.key(ctx, token)
		return key, err
	})
	if err != nil {
		return nil, "", mark, t.refusal(err, parsed, c)
	}
	return c, t.kindOf(parsed), mark, nil
}

// key checks the header of a token and returns the key to verify it with. The parser already
// checked alg.
func (t *trusted) key(ctx context.Context, token *jwt.Token) (any, keyMark, error) {
	if _, ok := token.Header["crit"]; ok {
		return nil, keyMark{}, refuse("the token asks for an extension (header crit), and none " +
			"is supported")
	}
	if t.kindOf(token) == "" {
		return nil, keyMark{}, refuse("the token's type (header typ) is not %s", t.acceptedTypes())
	}
	if t.ring.Load() == nil {
		t.source.ask(ctx)
	}
	ring := t.ring.Load()
	if ring == nil {
		return nil, keyMark{}, t.ready()
	}
	key, mark, known, err := ring.find(token.Header["kid"])
	if err != nil && !known && t.source != nil && t.source.ask(ctx) {
		key, mark, _, err = t.ring.Load().find(token.Header["kid"])
	}
	return key, mark, err
}

// kindOf returns the kind of a token by its header typ; "" for an unknown typ.
func (t *trusted) kindOf(token *jwt.Token) Kind {
	typ, _ := token.Header["typ"].(string)
	return t.kinds[mediaSubtype(typ)]
}

// acceptedTypes lists the accepted types, that of tenants first.
func (t *trusted) acceptedTypes() string {
	var tenants, operators string
	for typ, kind := range t.kinds {
		if kind == KindOperator {
			operators = " or " + quoted(typ)
		} else {
			tenants = quoted(typ)
		}
	}
	return tenants + operators
}

func quoted(text string) string { return strconv.Quote(text) }

// keyNames lists the keys for people.
func (t *trusted) keyNames() []string {
	ring := t.ring.Load()
	if ring == nil {
		return nil
	}
	return ring.names()
}
