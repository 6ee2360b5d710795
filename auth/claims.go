package auth

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/asyncflow/asyncflow"
)

// claims is the content of a token: the registered claims, the tenant, and the
// scopes separated by spaces (RFC 8693, section 4.2).
type claims struct {
	Tenant string `json:"tenant"`
	Scope  string `json:"scope,omitempty"`
	jwt.RegisteredClaims
}

// UnmarshalJSON reads claims by their exact names, as RFC 7519 has it; package
// json alone would take "Tenant" for "tenant". An error is a refusal that says
// which claim is wrong.
func (c *claims) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return refuse("the token's claims are not a JSON object")
	}
	var exp, nbf, iat date
	for _, claim := range []struct {
		name string
		into any
	}{
		{"iss", &c.Issuer}, {"sub", &c.Subject}, {"aud", &c.Audience}, {"jti", &c.ID},
		{"tenant", &c.Tenant}, {"scope", &c.Scope},
		{"exp", &exp}, {"nbf", &nbf}, {"iat", &iat},
	} {
		if raw[claim.name] == nil {
			continue
		}
		if err := json.Unmarshal(raw[claim.name], claim.into); err != nil {
			return refuse("the token's claim %s is not of the right form", claim.name)
		}
	}
	c.ExpiresAt, c.NotBefore, c.IssuedAt = exp.NumericDate, nbf.NumericDate, iat.NumericDate
	return nil
}

// principal returns who the claims speak of, once they are verified. It refuses
// claims without a proper tenant.
func (c *claims) principal() (Principal, error) {
	switch {
	case c.Tenant == "":
		return Principal{}, refuse("the token names no tenant: the claim tenant is required")
	case asyncflow.CheckName(c.Tenant) != nil:
		return Principal{}, refuse("the token's tenant is not a tenant name: it %v", asyncflow.CheckName(c.Tenant))
	case !validSubject(c.Subject):
		return Principal{}, refuse("the token's subject %s", subjectRule)
	}
	return Principal{
		Tenant:    c.Tenant,
		Subject:   c.Subject,
		TokenID:   asyncflow.AuditText(c.ID, asyncflow.MaxAuditText),
		Issuer:    c.Issuer,
		Scopes:    scopesOfToken(c.Scope),
		ExpiresAt: c.ExpiresAt.UTC(),
	}, nil
}

// date is a NumericDate that has to be a JSON number between 1970 and 9999. The
// library would read a string too, and overflow on a number like 1e300.
type date struct{ *jwt.NumericDate }

var lastSecond = float64(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix())

// UnmarshalJSON drops fractions of a second. A null is no date.
func (d *date) UnmarshalJSON(data []byte) error {
	var seconds *float64
	if err := json.Unmarshal(data, &seconds); err != nil || seconds == nil {
		return err
	}
	if *seconds < 0 || *seconds > lastSecond {
		return errors.New("a date out of range")
	}
	d.NumericDate = jwt.NewNumericDate(time.Unix(int64(*seconds), 0))
	return nil
}
