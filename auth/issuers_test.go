package auth

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// issuerNamed returns the config of an issuer with a public key.
func issuerNamed(name string, key pair) Config {
	cfg := publicConfig(key.public)
	cfg.Issuer = name
	return cfg
}

// The tokens of each issuer are checked against its own rules, keys, algorithm and audience, and
// against the rules of no other issuer.
func TestIssuersDontMix(t *testing.T) {
	t.Parallel()
	a, b, rs := newEd25519(t, map[string]string{"kid": "k"}),
		newEd25519(t, map[string]string{"kid": "k"}), newRSA(t)
	ofA, ofB, ofRS, ours := issuerNamed("https://a.example", a),
		issuerNamed("https://b.example", b),
		issuerNamed("https://rs.example", rs), secretConfig()
	ofB.Audience, ofB.TokenType, ofB.AdminType = "b-audience", "b+jwt", ""
	v, err := NewVerifier(ours, ofA, ofB, ofRS)
	require.NoError(t, err)
	token := func(key pair, header, claims fields) string {
		return sign(t, jwt.SigningMethodEdDSA, key.signer,
			fields{"alg": "EdDSA", "typ": "at+jwt", "kid": "k"}.with(header), claimsWith(claims))
	}
	for name, tc := range map[string]struct{ token, want string }{
		"A": {token(a, nil, fields{"iss": "https://a.example"}), ""},
		"B": {token(b, fields{"typ": "b+jwt"},
			fields{"iss": "https://b.example", "aud": "b-audience"}), ""},
		"ours": {hs256(t, nil, nil), ""},
		"A's key, B's name": {token(a, fields{"typ": "b+jwt"},
			fields{"iss": "https://b.example", "aud": "b-audience"}), "signature doesn't verify"},
		"B's key, A's name": {token(b, nil, fields{"iss": "https://a.example"}),
			"signature doesn't verify"},
		"A's key, our name": {token(a, nil, nil), "algorithm is not HS256"},
		"our secret, A's name": {hs256(t, fields{"kid": "k"}, fields{"iss": "https://a.example"}),
			"algorithm is not EdDSA"},
		"A's public key as a secret": {sign(t, jwt.SigningMethodHS256, a.public,
			headerWith(fields{"kid": "k"}), claimsWith(fields{"iss": "https://a.example"})),
			"algorithm is not EdDSA"},
		"RS's public key as a secret": {sign(t, jwt.SigningMethodHS256, rs.public, headerWith(nil),
			claimsWith(fields{"iss": "https://rs.example"})), "algorithm is not RS256"},
		"RS's public key, our name": {sign(t, jwt.SigningMethodHS256, rs.public, headerWith(nil),
			claimsWith(nil)), "signature doesn't verify"},
		"none, A's name": {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType,
			headerWith(fields{"alg": "none"}), claimsWith(fields{"iss": "https://a.example"})),
			"algorithm is not EdDSA"},
		"A's audience at B": {token(b, fields{"typ": "b+jwt"},
			fields{"iss": "https://b.example"}), "audience is not \"b-audience\""},
		"B's audience at A": {token(a, nil,
			fields{"iss": "https://a.example", "aud": "b-audience"}),
			"audience is not \"asyncflow\""},
		"A's typ at B": {token(b, nil,
			fields{"iss": "https://b.example", "aud": "b-audience"}), `is not "b+jwt"`},
		"B's typ at A": {token(a, fields{"typ": "b+jwt"},
			fields{"iss": "https://a.example"}), `is not "at+jwt" or "asyncflow-admin+jwt"`},
		"an operator's of B": {token(b, fields{"typ": DefaultAdminType},
			fields{"iss": "https://b.example", "aud": "b-audience", "tenant": absent,
				"scope": "admin"}),
			`is not "b+jwt"`},
		"nobody's": {token(a, nil, fields{"iss": "https://c.example"}),
			"is not trusted here"},
		"no issuer":    {token(a, nil, fields{"iss": absent}), "is not trusted here"},
		"empty issuer": {token(a, nil, fields{"iss": ""}), "is not trusted here"},
		"null issuer":  {token(a, nil, fields{"iss": nil}), "is not trusted here"},
		"issuer in capitals": {token(a, nil, fields{"iss": absent, "Iss": "https://a.example"}),
			"is not trusted here"},
		"A with a slash": {token(a, nil, fields{"iss": "https://a.example/"}),
			"is not trusted here"},
		"several issuers": {token(a, nil, fields{"iss": []string{"https://a.example"}}),
			"not of the right form"},
		"claims no object": {sign(t, jwt.SigningMethodEdDSA, a.signer, headerWith(nil),
			[]byte("[]")), "not of the right form"},
		"two parts":         {"a.b", "malformed"},
		"claims not base64": {"a.*.c", "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := verify(v, tc.token)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			requireRefused(t, err, tc.want)
		})
	}
}

// with returns a header with some changed members.
func (f fields) with(changes fields) []byte { return changes.over(f) }

func TestIssuersRefused(t *testing.T) {
	t.Parallel()
	_, err := NewVerifier()
	requireCode(t, err, asyncflow.CodeInvalid, "no token is trusted")
	a := issuerNamed("a", newEd25519(t, nil))
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"the same name": {func(c *Config) { c.Issuer = "a" },
			"Issuer is that of another issuer too"},
		"an empty name": {func(c *Config) { c.Issuer = "" }, "Issuer must not be empty"},
		"no audience":   {func(c *Config) { c.Audience = "" }, "Audience must not be empty"},
		"admin typ of tenants": {func(c *Config) { c.AdminType = "application/AT+JWT" },
			"AdminType must not be TokenType"},
		"blank admin typ": {func(c *Config) { c.AdminType = "application/" },
			"AdminType must not be blank"},
		"no tenant claim": {func(c *Config) { c.TenantClaim = nil },
			"TenantClaim must not be empty"},
		"an empty member": {func(c *Config) { c.TenantClaim = []string{"org", ""} },
			"TenantClaim must not be empty"},
		"no scope claim": {func(c *Config) { c.ScopeClaim = "" }, "ScopeClaim must not be empty"},
		"unknown scope": {func(c *Config) { c.ScopeNames = map[string][]Scope{"x": {"fly"}} },
			`ScopeNames names the unknown scope "fly"`},
		"bad tenant": {func(c *Config) { c.Tenants = []string{"acme", "Beta"} },
			`Tenants has "Beta"`},
		"keys of another": {func(c *Config) { c.Algorithm = "RS256" },
			"the keys are for EdDSA, not RS256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := issuerNamed("b", newEd25519(t, nil))
			tc.change(&b)
			_, err := NewVerifier(a, b)
			requireCode(t, err, asyncflow.CodeInvalid, tc.want)
			var wrong *IssuerError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, 1, wrong.Index)
		})
	}
}

// Only the typ distinguishes an operator's token from a tenant's, and each must carry the claims of
// its kind.
func TestKindsDontMix(t *testing.T) {
	t.Parallel()
	operator := fields{"typ": DefaultAdminType}
	for name, tc := range map[string]struct {
		header, claims fields
		want           string
		kind           Kind
		scopes         string
	}{
		"tenant":            {nil, nil, "", KindTenant, "submit read"},
		"tenant with admin": {nil, fields{"scope": "read admin"}, "", KindTenant, "read"},

		"operator": {operator, fields{"tenant": absent, "scope": "admin"}, "", KindOperator,
			"admin"},

		"operator with more": {operator,
			fields{"tenant": absent, "scope": "manage admin read"}, "", KindOperator, "admin"},
		"operator as a media type": {fields{"typ": "application/ASYNCFLOW-admin+jwt"},
			fields{"tenant": absent, "scope": "admin"}, "", KindOperator, "admin"},
		"operator with a tenant": {operator, fields{"scope": "admin"}, "names a tenant", "", ""},
		"operator without admin": {operator, fields{"tenant": absent, "scope": "manage"},
			"lacks the scope admin", "", ""},
		"operator without scopes": {operator, fields{"tenant": absent, "scope": absent},
			"lacks the scope admin", "", ""},
		"tenant's claims, operator's typ": {operator, nil, "names a tenant", "", ""},
		"operator's claims, tenant's typ": {nil, fields{"tenant": absent, "scope": "admin"},
			"names no tenant", "", ""},
		"a kind of its own": {fields{"typ": "asyncflow+jwt"}, nil, "header typ", "", ""},
		"a completion's":    {fields{"typ": "afc2"}, nil, "header typ", "", ""},
		"an ID token's":     {fields{"typ": "JWT"}, nil, "header typ", "", ""},
		"a logout token's":  {fields{"typ": "logout+jwt"}, nil, "header typ", "", ""},
		"operator with a subject of a NUL": {operator,
			fields{"tenant": absent, "scope": "admin", "sub": "\x00"}, "subject", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVerifier(t, secretConfig())
			p, err := v.Verify(context.Background(), hs256(t, tc.header, tc.claims), testNow)
			if tc.want != "" {
				requireRefused(t, err, tc.want)
				require.Zero(t, p)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.kind, p.Kind)
			require.Equal(t, tc.scopes, p.Scopes.String())
			require.Equal(t, tc.kind == KindTenant, p.Tenant == "acme")
			require.Equal(t, tc.kind == KindTenant, p.RequireKind(KindTenant) == nil)
			require.Equal(t, tc.kind == KindOperator, p.RequireKind(KindOperator) == nil)
		})
	}
	requireCode(t, Principal{Kind: KindTenant}.RequireKind(KindOperator), asyncflow.CodeForbidden,
		"needs an admin token")
	requireCode(t, Principal{Kind: KindOperator}.RequireKind(KindTenant), asyncflow.CodeForbidden,
		"needs the token of a tenant")
}

func TestIssueAdmin(t *testing.T) {
	t.Parallel()
	i, v := newIssuer(t, secretConfig()), newVerifier(t, secretConfig())
	token, err := i.IssueAdmin("alice", time.Hour, testNow)
	require.NoError(t, err)
	p, err := v.Verify(context.Background(), token, testNow)
	require.NoError(t, err)
	require.Equal(t, Principal{Kind: KindOperator, Issuer: "asyncflow", Subject: "alice",
		TokenID: p.TokenID, Scopes: NewScopes(ScopeAdmin), IssuedAt: testNow,
		ExpiresAt: testNow.Add(time.Hour)}, p)
	require.NotContains(t, string(decode(t, strings.Split(token, ".")[1])), "tenant")
	_, err = i.IssueAdmin("", time.Hour, testNow)
	requireCode(t, err, asyncflow.CodeInvalid, "subject ")
	_, err = i.IssueAdmin("alice", MaxTTL+1, testNow)
	requireCode(t, err, asyncflow.CodeInvalid, "ttl ")
	_, err = i.Issue("acme", "alice", []Scope{ScopeRead, ScopeAdmin}, time.Hour, testNow)
	requireCode(t, err, asyncflow.CodeInvalid, "scopes has admin")
	cfg := secretConfig()
	cfg.AdminType = ""
	_, err = newIssuer(t, cfg).IssueAdmin("alice", time.Hour, testNow)
	requireCode(t, err, asyncflow.CodeInvalid, "AdminType ")
	requireRefused(t, verify(newVerifier(t, cfg), token), "header typ")
}

// Foreign issuers name tenants and scopes in their own way.
func TestForeignClaims(t *testing.T) {
	t.Parallel()
	foreign := func(change func(*Config)) Config {
		cfg := secretConfig()
		cfg.TenantClaim, cfg.ScopeClaim = []string{"org", "slug"}, "https://asyncflow.example/scp"
		cfg.ScopeNames = map[string][]Scope{"tasks:write": {ScopeSubmit},
			"tasks:all": {ScopeSubmit, ScopeRead}, "root": {ScopeAdmin}, "nothing": {}}
		if change != nil {
			change(&cfg)
		}
		return cfg
	}
	nested := fields{"tenant": "evil", "scope": "manage", "org": fields{"slug": "acme", "id": 7},
		"https://asyncflow.example/scp": []string{"tasks:all", "manage"}}
	with := func(changes fields) fields {
		all := fields{}
		for _, f := range []fields{nested, changes} {
			for k, v := range f {
				all[k] = v
			}
		}
		return all
	}
	only := func(c *Config) { c.Tenants = []string{"acme", "beta"} }
	for name, tc := range map[string]struct {
		cfg    Config
		header fields
		claims fields
		want   string
		scopes string
	}{
		"nested and mapped": {foreign(nil), nil, nested, "", "submit read"},
		"scopes in a text": {foreign(nil), nil,
			with(fields{"https://asyncflow.example/scp": "tasks:write other"}), "", "submit"},
		"our names count for nothing": {foreign(nil), nil,
			with(fields{"https://asyncflow.example/scp": "manage nothing"}), "", ""},
		"no scopes": {foreign(nil), nil,
			with(fields{"https://asyncflow.example/scp": absent}), "", ""},
		"admin in a tenant's": {foreign(nil), nil,
			with(fields{"https://asyncflow.example/scp": "root tasks:write"}), "", "submit"},
		"no mapping": {foreign(func(c *Config) { c.ScopeNames = nil }), nil, nested, "", "manage"},
		"an empty mapping": {foreign(func(c *Config) { c.ScopeNames = map[string][]Scope{} }),
			nil, nested, "", ""},
		"no tenant there": {foreign(nil), nil, with(fields{"org": fields{"id": 7}}),
			"the claim org.slug is required", ""},
		"not nested": {foreign(nil), nil, with(fields{"org": "acme"}),
			"the claim org.slug is required", ""},
		"a list there": {foreign(nil), nil,
			with(fields{"org": fields{"slug": []string{"acme"}}}),
			"claim org.slug is not of the right form",
			""},
		"dots are not nesting": {foreign(nil), nil,
			with(fields{"org": absent, "org.slug": "acme"}), "the claim org.slug is required", ""},
		"one of its tenants": {foreign(only), nil, nested, "", "submit read"},
		"another tenant": {foreign(only), nil, with(fields{"org": fields{"slug": "gamma"}}),
			`may not speak for the tenant "gamma"`, ""},
		"an operator's": {foreign(only), fields{"typ": DefaultAdminType},
			with(fields{"org": absent, "https://asyncflow.example/scp": "root"}), "", "admin"},
		"an operator's, our name": {foreign(nil), fields{"typ": DefaultAdminType},
			with(fields{"org": absent, "https://asyncflow.example/scp": "admin"}),
			"lacks the scope admin",
			""},
		"an operator's with a tenant": {foreign(nil), fields{"typ": DefaultAdminType},
			with(fields{"https://asyncflow.example/scp": "root"}), "names a tenant", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newVerifier(t, tc.cfg).Verify(context.Background(),
				hs256(t, tc.header, tc.claims), testNow)
			if tc.want != "" {
				requireRefused(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.scopes, p.Scopes.String())
			require.Equal(t, p.Kind == KindTenant, p.Tenant == "acme")
		})
	}
}

// The rules for a key's algorithm apply to fetched keys too.
func TestConfusionOverAKeySet(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	rs, ed := newRSA(t), newEd25519(t, nil)
	set := setOf(jwkOf(t, rs, fields{"kid": "r"}), named(t, ed, "e"))
	s.publish(200, set)
	cfg := s.config()
	cfg.Algorithm = "RS256"
	v := newVerifier(t, cfg)
	require.NoError(t, v.trust.Load().issuers[0].source.load(t.Context()))
	require.NoError(t, verify(v, sign(t, jwt.SigningMethodRS256, rs.signer,
		headerWith(fields{"alg": "RS256", "kid": "r"}), claimsWith(nil))))
	modulus := decode(t, jwkMember(t, rs, "n"))
	for _, secret := range [][]byte{rs.public, []byte(strings.TrimSpace(string(rs.public))),
		modulus, set, jwkOf(t, rs, nil)} {
		for _, kid := range []any{"r", absent} {
			for _, alg := range []string{"HS256", "RS256"} {
				err := verify(v, sign(t, jwt.SigningMethodHS256, secret,
					headerWith(fields{"alg": alg, "kid": kid}), claimsWith(nil)))
				require.Error(t, err)
				require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
			}
		}
	}
	requireRefused(t, verify(v, tokenOf(t, ed, "e", nil)), "algorithm is not RS256")
	requireRefused(t, verify(v, sign(t, jwt.SigningMethodPS256, rs.signer,
		headerWith(fields{"alg": "PS256", "kid": "r"}), claimsWith(nil))), "algorithm is not RS256")
	for _, kid := range []string{"e", "../r", "r'; DROP TABLE keys; --", "r\x00",
		"https://evil.example/jwks#r", "R", " r", strings.Repeat("r", 4000)} {
		t.Run(fmt.Sprintf("%.20q", kid), func(t *testing.T) {
			requireRefused(t, verify(v, sign(t, jwt.SigningMethodRS256, rs.signer,
				headerWith(fields{"alg": "RS256", "kid": kid}), claimsWith(nil))), "not known here")
		})
	}
	require.False(t, slices.Contains(v.trust.Load().issuers[0].keyNames(), "e"),
		"a key of another family is not even kept")
}

func jwkMember(t *testing.T, key pair, name string) string {
	text, err := canonicalJWK(key.signer.Public())
	require.NoError(t, err)
	_, rest, _ := strings.Cut(text, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
