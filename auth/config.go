package auth

import (
	"bytes"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// MaxLeeway is the most that two clocks may be thought to differ.
	MaxLeeway = 30 * time.Second

	// MinSecretBytes is the least length of an HS256 secret: that of its hash
	// (RFC 7518, section 3.2).
	MinSecretBytes = 32

	// DefaultAdminType is the header typ of operators' tokens, unless configured.
	DefaultAdminType = "asyncflow-admin+jwt"

	minRSABits = 2048 // RFC 7518, section 3.3
)

// Config says which tokens are trusted and how they are made. Start from
// DefaultConfig and set the keys of one family: HMACSecret, or PublicKeys to
// verify and PrivateKey to issue.
type Config struct {
	HMACSecret []byte // HS256: at least MinSecretBytes random bytes
	PublicKeys []byte // PEM blocks PUBLIC KEY (PKIX) of one algorithm, for a Verifier
	PrivateKey []byte // one PEM block PRIVATE KEY (PKCS #8), for an Issuer

	Issuer    string        // the claim iss; default "asyncflow"; never empty
	Audience  string        // the claim aud; default "asyncflow"; never empty
	TokenType string        // the header typ of tenants' tokens; default "at+jwt" (RFC 9068); never empty
	AdminType string        // the header typ of operators' tokens; default DefaultAdminType; empty: there are none
	Leeway    time.Duration // how far clocks may differ, 0 to MaxLeeway; default 10 s
}

// DefaultConfig returns a Config with every default and no key. A Config
// written from nothing is refused, since an empty issuer or audience may be a
// setting that got lost, and would switch its check off.
func DefaultConfig() Config {
	return Config{Issuer: "asyncflow", Audience: "asyncflow", TokenType: "at+jwt", AdminType: DefaultAdminType, Leeway: 10 * time.Second}
}

// check refuses what no Verifier and no Issuer may be made from.
func (c Config) check() error {
	for _, f := range []struct{ name, value string }{
		{"Issuer", c.Issuer},
		{"Audience", c.Audience},
		{"TokenType", mediaSubtype(c.TokenType)},
	} {
		if strings.TrimSpace(f.value) == "" {
			return asyncflow.InvalidField(f.name, "must not be empty: start from DefaultConfig")
		}
	}
	if mediaSubtype(c.TokenType) == mediaSubtype(c.AdminType) {
		return asyncflow.InvalidField("AdminType", "must not be TokenType: it tells operators' tokens from those of tenants")
	}
	if c.Leeway < 0 || c.Leeway > MaxLeeway {
		return asyncflow.InvalidField("Leeway", "must be between 0 and %v, not %v", MaxLeeway, c.Leeway)
	}
	return c.checkFamily()
}

// checkFamily refuses a secret beside other keys, and a weak or public secret.
func (c Config) checkFamily() error {
	if len(c.HMACSecret) == 0 {
		return nil
	}
	if len(c.PublicKeys) > 0 || len(c.PrivateKey) > 0 {
		return asyncflow.InvalidField("HMACSecret", "must not be set beside PublicKeys or PrivateKey: keys are of one family")
	}
	if len(c.HMACSecret) < MinSecretBytes {
		return asyncflow.InvalidField("HMACSecret", "must have at least %d bytes, not %d", MinSecretBytes, len(c.HMACSecret))
	}
	if bytes.Contains(c.HMACSecret, []byte(pemBegin)) {
		return asyncflow.InvalidField("HMACSecret", "holds a PEM block, which may be public: set PublicKeys or PrivateKey instead")
	}
	return nil
}

// mediaSubtype returns a typ without its optional "application/" (RFC 7515,
// section 4.1.9), in lower case.
func mediaSubtype(typ string) string {
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}

// kinds returns the kind of token that each typ stands for.
func (c Config) kinds() map[string]Kind {
	kinds := map[string]Kind{mediaSubtype(c.TokenType): KindTenant}
	if c.AdminType != "" {
		kinds[mediaSubtype(c.AdminType)] = KindOperator
	}
	return kinds
}
