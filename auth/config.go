package auth

import (
	"bytes"
	"crypto/x509"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// MaxLeeway bounds Config.Leeway.
	MaxLeeway = 30 * time.Second

	// MinSecretBytes is the least length of an HS256 secret, which is the length of its hash
	// (RFC 7518, section 3.2).
	MinSecretBytes = 32

	// DefaultAdminType is the header typ of operators' tokens, unless configured.
	DefaultAdminType = "asyncflow-admin+jwt"

	// DefaultFileInterval is how often a file of keys is read, unless configured.
	DefaultFileInterval = 5 * time.Second
	// DefaultURLInterval is how often a key set is fetched, unless configured.
	DefaultURLInterval = 5 * time.Minute

	minRSABits  = 2048 // RFC 7518, section 3.3
	minInterval = time.Second
	maxInterval = 24 * time.Hour
)

// Config defines which tokens of one issuer are trusted and how they are issued. Start from
// DefaultConfig and set the keys of one family: one of HMACSecret, HMACSecretFile, PublicKeys,
// PublicKeysFile and JWKSURL to verify; HMACSecret, HMACSecretFile or PrivateKey to issue.
type Config struct {
	HMACSecret []byte // HS256: at least MinSecretBytes random bytes
	PublicKeys []byte // PEM blocks PUBLIC KEY (PKIX) or a JWK Set, of one algorithm; for a Verifier
	PrivateKey []byte // one PEM block PRIVATE KEY (PKCS #8); for an Issuer

	// HMACSecretFile holds at most 10 such secrets, one a line. An Issuer signs with the first. The
	// file is read again while the Verifier runs.
	HMACSecretFile string
	// PublicKeysFile holds what PublicKeys would hold. It is read again while the Verifier runs.
	PublicKeysFile string
	// JWKSURL is where the issuer publishes its JWK Set. Algorithm must be set too.
	JWKSURL string
	// AllowHTTP allows a plain http JWKSURL.
	AllowHTTP bool
	// RootCAs are the authorities for JWKSURL's host; nil: the system's.
	RootCAs *x509.CertPool
	// Interval is how often the file or URL is read again, 1 s to 24 h; 0: DefaultFileInterval or
	// DefaultURLInterval.
	Interval time.Duration

	// Algorithm is the only one that is accepted: HS256, EdDSA, ES256 or RS256. Empty: the one that
	// the keys are for. Keys of other algorithms in a JWK Set are skipped.
	Algorithm string

	Issuer   string // the claim iss; default "asyncflow"; never empty
	Audience string // the claim aud; default "asyncflow"; never empty
	// TokenType is the header typ of tenants' tokens; default "at+jwt" (RFC 9068); never empty.
	TokenType string
	// AdminType is the header typ of operators' tokens; default DefaultAdminType. Empty: the issuer
	// issues no operators' tokens.
	AdminType string
	Leeway    time.Duration // how far clocks may differ, 0 to MaxLeeway; default 10 s

	// The following is for a Verifier of the tokens of a foreign issuer. An Issuer writes the
	// defaults.

	// TenantClaim is the path of the claim that names the tenant; default "tenant".
	TenantClaim []string
	// ScopeClaim is the claim with the scopes, a text or a list; default "scope".
	ScopeClaim string
	// ScopeNames gives our scopes for each of the issuer's. Other scopes of the issuer are ignored;
	// nil: the issuer uses our names.
	ScopeNames map[string][]Scope
	// Tenants are the only tenants that the issuer's tokens may name; empty: all.
	Tenants []string
}

// DefaultConfig returns a Config with every default and no key. A Config without these defaults is
// refused: an empty issuer or audience may be a setting that was lost, and would turn off its
// check.
func DefaultConfig() Config {
	return Config{
		Issuer:      "asyncflow",
		Audience:    "asyncflow",
		TokenType:   "at+jwt",
		AdminType:   DefaultAdminType,
		Leeway:      10 * time.Second,
		TenantClaim: []string{"tenant"},
		ScopeClaim:  "scope",
	}
}

// check refuses a Config that no Verifier and no Issuer can use.
func (c Config) check() error {
	for _, f := range []struct{ name, value string }{
		{"Issuer", c.Issuer},
		{"Audience", c.Audience},
		{"TokenType", mediaSubtype(c.TokenType)},
		{"ScopeClaim", c.ScopeClaim},
	} {
		if strings.TrimSpace(f.value) == "" {
			return asyncflow.InvalidField(f.name, "must not be empty: it is always checked")
		}
	}
	if len(c.TenantClaim) == 0 || slices.Contains(c.TenantClaim, "") {
		return asyncflow.InvalidField("TenantClaim", "must not be empty: it says whose token it is")
	}
	if mediaSubtype(c.TokenType) == mediaSubtype(c.AdminType) {
		return asyncflow.InvalidField("AdminType",
			"must not be TokenType: it distinguishes operators' tokens from tenants'")
	}
	if c.AdminType != "" && strings.TrimSpace(mediaSubtype(c.AdminType)) == "" {
		return asyncflow.InvalidField("AdminType",
			"must not be blank; empty, there are no operators' tokens")
	}
	if c.Leeway < 0 || c.Leeway > MaxLeeway {
		return asyncflow.InvalidField("Leeway", "must be between 0 and %v, not %v", MaxLeeway,
			c.Leeway)
	}
	if c.Interval != 0 && (c.Interval < minInterval || c.Interval > maxInterval) {
		return asyncflow.InvalidField("Interval", "must be between %v and %v, not %v",
			minInterval, maxInterval, c.Interval)
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	return c.checkFamily()
}

// checkNames refuses unknown scopes, and names that can't be a tenant's.
func (c Config) checkNames() error {
	for _, foreign := range slices.Sorted(maps.Keys(c.ScopeNames)) {
		for _, s := range c.ScopeNames[foreign] {
			if !s.Known() {
				return unknownScope("ScopeNames", s)
			}
		}
	}
	for _, tenant := range c.Tenants {
		if err := asyncflow.CheckName(tenant); err != nil {
			return asyncflow.InvalidField("Tenants", "has %.60q, which is not a tenant name: it %v",
				tenant, err)
		}
	}
	return nil
}

// checkFamily refuses a secret together with other keys, a weak or public secret, and keys from
// several places.
func (c Config) checkFamily() error {
	if c.Algorithm != "" && methodNamed(c.Algorithm) == nil {
		return asyncflow.InvalidField("Algorithm",
			"is %.20q; it must be HS256, EdDSA, ES256 or RS256", c.Algorithm)
	}
	if len(c.HMACSecret) == 0 && c.HMACSecretFile == "" {
		return c.checkPublic()
	}
	return c.checkSecret()
}

func (c Config) checkSecret() error {
	name := "HMACSecret"
	if c.HMACSecretFile != "" {
		name = "HMACSecretFile"
	}
	if len(c.PublicKeys) > 0 || len(c.PrivateKey) > 0 || c.PublicKeysFile != "" || c.JWKSURL != "" {
		return asyncflow.InvalidField(name,
			"must not be set beside public keys or PrivateKey: keys are of one family")
	}
	if c.HMACSecretFile != "" && len(c.HMACSecret) > 0 {
		return asyncflow.InvalidField(name,
			"must not be set beside a secret: the file holds them all")
	}
	if c.HMACSecretFile == "" && len(c.HMACSecret) < MinSecretBytes {
		return asyncflow.InvalidField(name, "must have at least %d bytes, not %d",
			MinSecretBytes, len(c.HMACSecret))
	}
	if bytes.Contains(c.HMACSecret, []byte(pemBegin)) {
		return asyncflow.InvalidField(name,
			"holds a PEM block, which may be public: set PublicKeys or PrivateKey instead")
	}
	if c.Algorithm != "" && c.Algorithm != "HS256" {
		return asyncflow.InvalidField("Algorithm",
			"is %s, but the key is a secret: it must be HS256", c.Algorithm)
	}
	return nil
}

func (c Config) checkPublic() error {
	places := 0
	for _, set := range []bool{len(c.PublicKeys) > 0, c.PublicKeysFile != "", c.JWKSURL != ""} {
		if set {
			places++
		}
	}
	if places > 1 {
		return asyncflow.InvalidField("PublicKeys",
			"must be set alone: keys come from PublicKeys, PublicKeysFile or JWKSURL")
	}
	if c.Algorithm == "HS256" {
		return asyncflow.InvalidField("Algorithm",
			"is HS256, which needs HMACSecret: a public key is no secret")
	}
	if c.JWKSURL == "" {
		return nil
	}
	if c.Algorithm == "" {
		return asyncflow.InvalidField("Algorithm",
			"must be set beside JWKSURL: a key set may have keys of several")
	}
	return c.checkURL()
}

func (c Config) checkURL() error {
	u, err := url.Parse(c.JWKSURL)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" ||
		(u.Scheme != "https" && u.Scheme != "http") {
		return asyncflow.InvalidField("JWKSURL",
			"must be an absolute https URL without user and fragment")
	}
	if u.Scheme == "http" && !c.AllowHTTP {
		return asyncflow.InvalidField("JWKSURL",
			"must be an https URL unless plain http is allowed: "+
				"anyone who can change the keys can make any token")
	}
	return nil
}

// mediaSubtype returns a typ without its optional "application/" (RFC 7515,
// section 4.1.9), in lower case.
func mediaSubtype(typ string) string {
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}

// equal reports whether c and other trust the same tokens by the same rules.
func (c Config) equal(other Config) bool {
	sameCAs := c.RootCAs.Equal(other.RootCAs)
	c.RootCAs, other.RootCAs = nil, nil
	return sameCAs && reflect.DeepEqual(c, other)
}

// sameURL reports whether c and other get their keys from the same URL under the same rules.
func (c Config) sameURL(other Config) bool {
	return c.JWKSURL == other.JWKSURL && c.Algorithm == other.Algorithm &&
		c.AllowHTTP == other.AllowHTTP && c.RootCAs.Equal(other.RootCAs)
}

// kinds returns the kind of token that each typ stands for.
func (c Config) kinds() map[string]Kind {
	kinds := map[string]Kind{mediaSubtype(c.TokenType): KindTenant}
	if c.AdminType != "" {
		kinds[mediaSubtype(c.AdminType)] = KindOperator
	}
	return kinds
}
