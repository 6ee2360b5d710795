package console

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

// OIDC describes a login at an issuer by OpenID Connect: its authorization code flow with PKCE.
// The API must trust the issuer's tokens too, since one of them becomes the session.
type OIDC struct {
	Issuer       string // its URL, which is also the claim iss; "": there is no such login
	ClientID     string
	ClientSecret string   // "": a public client
	Scopes       []string // what is asked for; default openid; openid is always among them
	// Token says which token becomes the session: TokenID, the default, or TokenAccess, which must
	// be a JWT.
	Token string
	// Timeout bounds each exchange with the issuer; 0: 10 s.
	Timeout time.Duration
}

// Values of OIDC.Token.
const (
	TokenID     = "id"
	TokenAccess = "access"
)

func (o OIDC) withDefaults() OIDC {
	o.Token = cmp.Or(o.Token, TokenID)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if !slices.Contains(o.Scopes, "openid") {
		o.Scopes = append([]string{"openid"}, o.Scopes...)
	}
	return o
}

// Check refuses settings that can't work. The error is an InvalidField of oidc-issuer,
// oidc-client-id or oidc-token. It doesn't ask the issuer: a node starts without it.
func (o OIDC) Check() error {
	if o.Issuer == "" {
		if o.ClientID != "" || o.ClientSecret != "" {
			return asyncflow.InvalidField("oidc-issuer", "must be set: a client belongs to an issuer")
		}
		return nil
	}
	if u, err := url.Parse(o.Issuer); err != nil || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || !secure(u) {
		return asyncflow.InvalidField("oidc-issuer",
			"must be an absolute https URL without user, query and fragment")
	}
	if o.ClientID == "" {
		return asyncflow.InvalidField("oidc-client-id", "must be set beside the issuer")
	}
	if o.Token != "" && o.Token != TokenID && o.Token != TokenAccess {
		return asyncflow.InvalidField("oidc-token", "is %.20q; it must be %s or %s", o.Token, TokenID,
			TokenAccess)
	}
	return nil
}

// secure reports whether nobody on the way can read or change what goes to a URL: it is https, or
// leads to this machine.
func secure(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" ||
		u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}
