package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/asyncflow/asyncflow"
)

// claimRules define where the claims of an issuer's tokens are and what they mean.
type claimRules struct {
	tenant  []string          // the path of the claim that names the tenant
	scope   string            // the claim with the scopes
	names   map[string]Scopes // our scopes for each of the issuer's; nil: it uses ours
	tenants map[string]bool   // the only tenants that it may name; nil: all
}

func (c Config) claimRules() claimRules {
	r := claimRules{tenant: slices.Clone(c.TenantClaim), scope: c.ScopeClaim}
	if c.ScopeNames != nil {
		r.names = make(map[string]Scopes, len(c.ScopeNames))
		for foreign, ours := range c.ScopeNames {
			r.names[foreign] = NewScopes(ours...)
		}
	}
	if len(c.Tenants) > 0 {
		r.tenants = make(map[string]bool, len(c.Tenants))
		for _, tenant := range c.Tenants {
			r.tenants[tenant] = true
		}
	}
	return r
}

// scopes returns our scopes for the scopes in a token.
func (r *claimRules) scopes(names []string) Scopes {
	if r.names == nil {
		return scopesOfToken(names)
	}
	var set Scopes
	for _, name := range names {
		set |= r.names[name]
	}
	return set
}

// claims is the content of a token: the registered claims, the tenant and the scopes. Tokens that
// an Issuer issues carry the claim tenant, and the claim scope with the scopes separated by spaces
// (RFC 8693, section 4.2). rules define where a Verifier reads them.
type claims struct {
	Tenant string `json:"tenant,omitempty"`
	Scope  string `json:"scope,omitempty"`
	// Claimers are the names under which the token may claim; nil: it doesn't say.
	Claimers Claimers `json:"claimers,omitempty"`
	// Labels are what it says of its claimers; nil: the callers say that.
	Labels Labels `json:"claims_labels,omitempty"`
	// Stages say from where it may claim; nil: from all.
	Stages Stages `json:"claims_types,omitempty"`
	jwt.RegisteredClaims

	rules  *claimRules
	scopes []string // as in the token
}

// UnmarshalJSON reads claims by their exact names, as RFC 7519 requires; package json alone would
// accept "Tenant" for "tenant". An error is a refusal that names the claim.
func (c *claims) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return refuse("the token's claims are not a JSON object")
	}
	var exp, nbf, iat date
	for _, claim := range []struct {
		name string
		from json.RawMessage
		into any
	}{
		{"iss", raw["iss"], &c.Issuer},
		{"sub", raw["sub"], &c.Subject},
		{"aud", raw["aud"], &c.Audience},
		{"jti", raw["jti"], &c.ID},
		{"exp", raw["exp"], &exp},
		{"nbf", raw["nbf"], &nbf},
		{"iat", raw["iat"], &iat},
		{strings.Join(c.rules.tenant, "."), member(raw, c.rules.tenant), &c.Tenant},
		{"claimers", raw["claimers"], &c.Claimers},
		{"claims_labels", raw["claims_labels"], &c.Labels},
		{"claims_types", raw["claims_types"], &c.Stages},
		{c.rules.scope, raw[c.rules.scope], (*scopeList)(&c.scopes)},
	} {
		if claim.from == nil {
			continue
		}
		if err := json.Unmarshal(claim.from, claim.into); err != nil {
			return refuse("the token's claim %s is not of the right form", claim.name)
		}
	}
	c.ExpiresAt, c.NotBefore, c.IssuedAt = exp.NumericDate, nbf.NumericDate, iat.NumericDate
	return nil
}

// member returns the member of an object at a path; nil if there is none.
func member(object map[string]json.RawMessage, path []string) json.RawMessage {
	for ; len(path) > 1; path = path[1:] {
		var inner map[string]json.RawMessage
		if object[path[0]] == nil || json.Unmarshal(object[path[0]], &inner) != nil {
			return nil
		}
		object = inner
	}
	return object[path[0]]
}

// scopeList is scopes in a token: a text with spaces between them, or a list of texts.
type scopeList []string

// UnmarshalJSON reads either form.
func (l *scopeList) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		*l = strings.Fields(text)
		return nil
	}
	var list []string
	err := json.Unmarshal(data, &list)
	*l = list
	return err
}

// principal returns the caller that the verified claims of a token of a kind name.
func (c *claims) principal(kind Kind) (Principal, error) {
	if !validSubject(c.Subject) {
		return Principal{}, refuse("the token's subject %s", subjectRule)
	}
	p := Principal{
		Kind:      kind,
		Issuer:    c.Issuer,
		Subject:   c.Subject,
		Claimers:  c.Claimers,
		Labels:    c.Labels,
		Stages:    c.Stages,
		TokenID:   asyncflow.AuditText(c.ID, asyncflow.MaxAuditText),
		ExpiresAt: c.ExpiresAt.UTC(),
	}
	if c.IssuedAt != nil {
		p.IssuedAt = c.IssuedAt.UTC()
	}
	if kind == KindOperator {
		return c.operator(p)
	}
	return c.tenant(p)
}

// tenant completes a tenant's principal. It ignores the scope admin.
func (c *claims) tenant(p Principal) (Principal, error) {
	if c.Tenant == "" {
		return Principal{}, refuse("the token names no tenant: the claim %s is required",
			strings.Join(c.rules.tenant, "."))
	}
	if err := asyncflow.CheckName(c.Tenant); err != nil {
		return Principal{}, refuse("the token's tenant is not a tenant name: it %v", err)
	}
	if c.rules.tenants != nil && !c.rules.tenants[c.Tenant] {
		return Principal{}, refuse("the token's issuer may not speak for the tenant %q", c.Tenant)
	}
	p.Tenant, p.Scopes = c.Tenant, c.rules.scopes(c.scopes)&^ScopeAdmin.bit()
	return p, nil
}

// operator completes an operator's principal. It refuses a token that names a tenant: that may be
// a tenant's token with the wrong typ.
func (c *claims) operator(p Principal) (Principal, error) {
	if c.Tenant != "" {
		return Principal{}, refuse("the admin token names a tenant: it speaks for none")
	}
	p.Scopes = c.rules.scopes(c.scopes) & ScopeAdmin.bit()
	if p.Scopes == 0 {
		return Principal{}, refuse("the admin token lacks the scope admin")
	}
	return p, nil
}

// date is a NumericDate that must be a JSON number between 1970 and 9999. The library would accept
// a string too, and overflow on a number like 1e300.
type date struct{ *jwt.NumericDate }

var lastSecond = float64(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix())

// UnmarshalJSON drops fractions of a second. null is no date.
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

// Claimed returns the claims of a token without verifying it: anybody can write them. Use it only
// for the audit of denied calls. Claims that can't be parsed are left out.
func Claimed(token string) asyncflow.AuditClaim {
	parts := strings.Split(token, ".")
	if len(token) > MaxTokenBytes || len(parts) != 3 {
		return asyncflow.AuditClaim{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var doc map[string]any
	if err != nil || json.Unmarshal(payload, &doc) != nil {
		return asyncflow.AuditClaim{}
	}
	text := func(name string) string {
		claim, _ := doc[name].(string)
		return asyncflow.AuditText(claim, asyncflow.MaxAuditClaim)
	}
	return asyncflow.AuditClaim{
		Issuer:  text("iss"),
		Subject: text("sub"),
		Tenant:  text("tenant"),
		TokenID: text("jti"),
	}
}
