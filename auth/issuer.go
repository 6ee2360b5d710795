package auth

import (
	"bytes"
	"crypto/rand"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/golang-jwt/jwt/v5"
)

// MaxTTL is the longest that a token may live: 10 years of 365 days.
const MaxTTL = 10 * 365 * 24 * time.Hour

// Issuer issues tokens. It is safe for concurrent use.
type Issuer struct {
	issuer   string
	audience string
	typ      string
	adminTyp string
	method   jwt.SigningMethod
	key      any    // []byte or a crypto.Signer
	keyID    string // empty for a secret
}

// NewIssuer returns an Issuer that signs with HMACSecret, the first secret in HMACSecretFile, or
// PrivateKey. If there are PublicKeys in cfg, too, the private key must belong to one of them, with
// the same id, so that a Verifier of the same cfg accepts the tokens. An error is an InvalidField
// that names the field of cfg.
func NewIssuer(cfg Config) (*Issuer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	i := &Issuer{
		issuer:   cfg.Issuer,
		audience: cfg.Audience,
		typ:      mediaSubtype(cfg.TokenType),
		adminTyp: mediaSubtype(cfg.AdminType),
	}
	if len(cfg.HMACSecret) > 0 {
		i.method, i.key = jwt.SigningMethodHS256, bytes.Clone(cfg.HMACSecret)
		return i, nil
	}
	if cfg.HMACSecretFile != "" {
		secret, err := firstSecret(cfg.HMACSecretFile)
		if err != nil {
			return nil, asyncflow.InvalidField("HMACSecretFile", "can't be used: %v", err)
		}
		i.method, i.key = jwt.SigningMethodHS256, secret
		return i, nil
	}
	if len(cfg.PrivateKey) == 0 {
		return nil, asyncflow.InvalidField("PrivateKey",
			"must be set, or HMACSecret: there is no key to sign with")
	}
	signer, public, err := parsePrivateKey(cfg.PrivateKey)
	if err != nil {
		return nil, asyncflow.InvalidField("PrivateKey", "can't be used: %v", err)
	}
	i.method, i.key, i.keyID = public.method, signer, public.id
	return i, checkPair(cfg, public)
}

// checkPair refuses a private key that belongs to none of PublicKeys, if any are set.
func checkPair(cfg Config, private publicKey) error {
	if len(cfg.PublicKeys) == 0 {
		return nil
	}
	keys, _, err := parseKeys(cfg.PublicKeys, "")
	if err != nil {
		return asyncflow.InvalidField("PublicKeys", "can't be used: %v", err)
	}
	for _, k := range keys {
		if k.mark() == private.mark() {
			return nil
		}
	}
	return asyncflow.InvalidField("PrivateKey",
		"is not the other half of any of PublicKeys, or has another id")
}

// Issue returns a token that lets subject act for tenant with scopes, from now until ttl is over,
// rounded up to a whole second. Scopes may be empty, and must not include admin; ttl is above 0 and
// at most MaxTTL. An error about an argument is an InvalidField that names it: tenant, subject,
// scopes or ttl.
//
// There is no nbf in the token, so that it is valid at once on a node with a slow clock.
func (i *Issuer) Issue(
	tenant, subject string, scopes []Scope, ttl time.Duration, now time.Time,
) (string, error) {
	if err := checkIssue(tenant, subject, scopes, ttl); err != nil {
		return "", err
	}
	c := claims{Tenant: tenant, Scope: NewScopes(scopes...).String()}
	return i.sign(i.typ, c, subject, ttl, now)
}

// IssueLimited is Issue, with limits on what the token may claim.
func (i *Issuer) IssueLimited(
	tenant, subject string, scopes []Scope, l ClaimLimits, ttl time.Duration, now time.Time,
) (string, error) {
	if err := checkIssue(tenant, subject, scopes, ttl); err != nil {
		return "", err
	}
	if err := l.Claimers.check(); err != nil {
		return "", err
	}
	if err := asyncflow.CheckClaimerLabels("claims_labels", l.Labels.Claimer()); err != nil {
		return "", err
	}
	if err := l.Stages.check(); err != nil {
		return "", err
	}
	c := claims{Tenant: tenant, Scope: NewScopes(scopes...).String(), Claimers: l.Claimers,
		Labels: l.Labels, Stages: l.Stages}
	return i.sign(i.typ, c, subject, ttl, now)
}

// IssueAdmin returns an operator's token, which names no tenant and carries the scope admin.
// It takes and returns what Issue does. Without a Config.AdminType it returns an error.
func (i *Issuer) IssueAdmin(subject string, ttl time.Duration, now time.Time) (string, error) {
	if i.adminTyp == "" {
		return "", asyncflow.InvalidField("AdminType",
			"must be set: it distinguishes operators' tokens")
	}
	if err := checkBearer(subject, ttl); err != nil {
		return "", err
	}
	return i.sign(i.adminTyp, claims{Scope: string(ScopeAdmin)}, subject, ttl, now)
}

// sign completes claims and signs them.
func (i *Issuer) sign(
	typ string, c claims, subject string, ttl time.Duration, now time.Time,
) (string, error) {
	c.RegisteredClaims = jwt.RegisteredClaims{
		Issuer:    i.issuer,
		Subject:   subject,
		Audience:  jwt.ClaimStrings{i.audience},
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl + time.Second - 1)), // which rounds down
		ID:        rand.Text(),
	}
	token := jwt.NewWithClaims(i.method, c)
	token.Header["typ"] = typ
	if i.keyID != "" {
		token.Header["kid"] = i.keyID
	}
	signed, err := token.SignedString(i.key)
	if err != nil {
		return "", &asyncflow.Error{Code: asyncflow.CodeInternal, Op: "auth.Issue", Err: err}
	}
	return signed, nil
}

// checkIssue refuses what a Verifier would refuse, and a token without a subject.
func checkIssue(tenant, subject string, scopes []Scope, ttl time.Duration) error {
	if err := asyncflow.CheckName(tenant); err != nil {
		return asyncflow.InvalidField("tenant", "%v", err)
	}
	for _, s := range scopes {
		if !s.Known() {
			return unknownScope("scopes", s)
		}
		if s == ScopeAdmin {
			return asyncflow.InvalidField("scopes",
				"has admin, which a tenant's token can't carry: operators have tokens of their own")
		}
	}
	return checkBearer(subject, ttl)
}

// checkBearer is the part of checkIssue that applies to every kind of token.
func checkBearer(subject string, ttl time.Duration) error {
	if strings.TrimSpace(subject) == "" {
		return asyncflow.InvalidField("subject", "must not be empty: it says whose token it is")
	}
	if !validSubject(subject) {
		return asyncflow.InvalidField("subject", subjectRule)
	}
	if ttl <= 0 || ttl > MaxTTL {
		return asyncflow.InvalidField("ttl", "must be above 0 and at most 10 years, not %v", ttl)
	}
	return nil
}
