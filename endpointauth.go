package asyncflow

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
)

// EndpointAuth is how asyncflow authenticates at an endpoint.
type EndpointAuth struct {
	Kind         AuthKind `json:"kind"`
	Token        string   `json:"token,omitempty"`         // bearer
	Username     string   `json:"username,omitempty"`      // basic
	Password     string   `json:"password,omitempty"`      // basic
	TokenURL     string   `json:"token_url,omitempty"`     // oauth2
	ClientID     string   `json:"client_id,omitempty"`     // oauth2
	ClientSecret string   `json:"client_secret,omitempty"` // oauth2
	Scopes       []string `json:"scopes,omitempty"`        // oauth2
}

// AuthKind is a way to authenticate.
type AuthKind string

const (
	AuthNone   AuthKind = "none"
	AuthBearer AuthKind = "bearer"
	AuthBasic  AuthKind = "basic"
	AuthOAuth2 AuthKind = "oauth2" // client credentials (RFC 6749, section 4.4)
)

// EndpointTLS holds the certificates for connections to an endpoint, all PEM.
type EndpointTLS struct {
	// the trusted authorities; empty: the system's
	CA          string `json:"ca,omitempty"`
	Certificate string `json:"certificate,omitempty"` // the client's, with its chain
	Key         string `json:"key,omitempty"`         // of the certificate
}

// Limits of an endpoint's auth and TLS.
const (
	MaxCredential = 4096 // bytes of a token, name, password or secret
	MaxScopes     = 50
	MaxPEM        = 64 << 10 // bytes
)

// check checks that a kind of auth comes with what it needs, and nothing else.
func (a EndpointAuth) check(out *problems, egress Egress) {
	needs := map[AuthKind][]string{
		AuthNone: {}, AuthBearer: {"token"}, AuthBasic: {"username", "password"},
		AuthOAuth2: {"token_url", "client_id", "client_secret"},
	}
	needed, known := needs[a.Kind]
	switch {
	case a.Kind == "" && a.empty():
		return
	case !known:
		out.add("auth.kind", "is %q; it must be none, bearer, basic or oauth2", a.Kind)
		return
	}
	for _, f := range a.fields() {
		a.checkField(out, f, slices.Contains(needed, f.name))
	}
	if a.Kind == AuthBasic && strings.Contains(a.Username, ":") {
		out.add("auth.username", "must not hold a colon")
	}
	if a.Kind == AuthOAuth2 {
		if why := checkURL(a.TokenURL, egress); why != "" {
			out.add("auth.token_url", "%s", why)
		}
	}
	a.checkScopes(out)
}

// authField is one text of an EndpointAuth.
type authField struct{ name, value string }

func (a EndpointAuth) fields() []authField {
	return []authField{{"token", a.Token}, {"username", a.Username}, {"password", a.Password},
		{"token_url", a.TokenURL}, {"client_id", a.ClientID}, {"client_secret", a.ClientSecret}}
}

func (a EndpointAuth) empty() bool {
	return len(a.Scopes) == 0 && !slices.ContainsFunc(a.fields(),
		func(f authField) bool { return f.value != "" })
}

func (a EndpointAuth) checkField(out *problems, f authField, needed bool) {
	field := "auth." + f.name
	switch {
	case !needed && f.value != "":
		out.add(field, "doesn't belong to auth of the kind %s", a.Kind)
	case !needed, f.name == "token_url": // it follows its own rules
	case f.value == "":
		out.add(field, "is required for auth of the kind %s", a.Kind)
	case len(f.value) > MaxCredential:
		out.add(field, "is %d bytes long; the limit is %d", len(f.value), MaxCredential)
	case f.value == Mask:
		out.add(field, "is the mask, not the value: leave auth out to keep it as it is")
	case !isHeaderValue(f.value) && f.name != "password" && f.name != "client_secret":
		out.add(field, "must be printable ASCII, without a space at its begin or end")
	case strings.ContainsFunc(f.value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		out.add(field, "must not hold control characters")
	}
}

func (a EndpointAuth) checkScopes(out *problems) {
	switch {
	case len(a.Scopes) > 0 && a.Kind != AuthOAuth2:
		out.add("auth.scopes", "doesn't belong to auth of the kind %s", a.Kind)
	case len(a.Scopes) > MaxScopes:
		out.add("auth.scopes", "has %d scopes; the limit is %d", len(a.Scopes), MaxScopes)
	case slices.ContainsFunc(a.Scopes, func(s string) bool {
		return !isHeaderValue(s) || len(s) > 255 || strings.ContainsAny(s, " \t\"\\")
	}):
		out.add("auth.scopes",
			"has one that is none: 1 to 255 characters of printable ASCII without spaces, quotes "+
				"and backslashes")
	}
}

func (t EndpointTLS) check(out *problems, url string) {
	if t == (EndpointTLS{}) {
		return
	}
	if !strings.HasPrefix(strings.ToLower(url), "https:") {
		out.add("tls", "is for https URLs only")
	}
	for _, f := range []struct{ field, pem string }{{"tls.ca", t.CA},
		{"tls.certificate", t.Certificate}, {"tls.key", t.Key}} {
		if len(f.pem) > MaxPEM {
			out.add(f.field, "is %d bytes long; the limit is %d", len(f.pem), MaxPEM)
			return
		}
	}
	if t.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(t.CA)) {
		out.add("tls.ca", "has no certificate in PEM")
	}
	switch _, err := tls.X509KeyPair([]byte(t.Certificate), []byte(t.Key)); {
	case t.Certificate == "" && t.Key == "":
	case t.Certificate == "":
		out.add("tls.certificate", "is required with a key")
	case t.Key == "":
		out.add("tls.key", "is required with a certificate")
	case t.Key == Mask:
		out.add("tls.key", "is the mask, not the key: leave tls out to keep it as it is")
	case err != nil:
		out.add("tls.certificate", "and tls.key are no pair in PEM")
	}
}
