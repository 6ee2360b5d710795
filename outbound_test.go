package asyncflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

const workerURL = "https://worker.example.com/"

func TestOutboundHeaders(t *testing.T) {
	const (
		reserved = " is set by asyncflow or by HTTP itself, and can't be yours"
		noName   = "headers has a name that is none: a header's name has letters, digits and " +
			"!#$%&'*+-.^_`|~ only, 1 to 128 of them"
		noValue = " must be printable ASCII, without a space at its begin or end, and not empty"
	)
	many := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("X-%d", i)] = "v"
		}
		return all
	}
	type when struct {
		headers map[string]string
		auth    asyncflow.AuthKind
		want    string
	}
	one := func(name, value, want string) when {
		return when{headers: map[string]string{name: value}, want: want}
	}
	cases := map[string]when{
		"one":            one("X-Api-Key", "k e\ty~!", ""),
		"odd characters": one("x!#$%&'*+-.^_`|~9", "v", ""),
		"authorization":  one("authorization", "Token x", ""),
		"cookie":         one("Cookie", "a=b", ""),
		"most":           {headers: many(20)},
		"too many":       {headers: many(21), want: "headers has 21 headers; the limit is 20"},
		"most bytes":     one("X", strings.Repeat("v", 8191), ""),
		"too many bytes": one("X", strings.Repeat("v", 8192),
			"headers has 8193 bytes of names and values; the limit is 8192"),
		"no name":           one("", "v", noName),
		"space in a name":   one("X Y", "v", noName),
		"newline in a name": one("X\r\nEvil", "v", noName),
		"colon in a name":   one("X:", "v", noName),
		"long name":         one(strings.Repeat("x", 129), "v", noName),
		"umlaut in a name":  one("Schlüssel", "v", noName),
		"no value":          one("X", "", "headers.X"+noValue),
		"newline":           one("X", "a\nb", "headers.X"+noValue),
		"carriage return":   one("X", "a\rb", "headers.X"+noValue),
		"NUL":               one("X", "a\x00b", "headers.X"+noValue),
		"DEL":               one("X", "a\x7fb", "headers.X"+noValue),
		"umlaut":            one("X", "ü", "headers.X"+noValue),
		"leading space":     one("X", " a", "headers.X"+noValue),
		"trailing tab":      one("X", "a\t", "headers.X"+noValue),
		"mask": one("X", "********",
			"headers.X is the mask, not the value: leave headers out to keep them as they are"),
		"twice": {headers: map[string]string{"X-A": "1", "x-a": "2"},
			want: "headers.x-a is given twice: case doesn't count"},
		"authorization and auth": {headers: map[string]string{"authorization": "x"},
			auth: asyncflow.AuthBearer,
			want: "headers.authorization can't be set together with auth"},
		"authorization and no auth": {headers: map[string]string{"authorization": "x"},
			auth: asyncflow.AuthNone},
	}
	for _, name := range []string{"Host", "host", "Connection", "keep-alive", "TE", "Trailer",
		"Transfer-Encoding", "Upgrade", "HTTP2-Settings", "Proxy-Authorization",
		"Proxy-Connection", "Content-Length", "content-type", "Content-Encoding", "Webhook-Id",
		"webhook-signature", "Expect", "Accept-Encoding", "User-Agent"} {
		cases[name] = one(name, "v", "headers."+name+reserved)
	}
	parallel(t, cases, func(t *testing.T, c when) {
		o := asyncflow.Outbound{Headers: c.headers, Auth: asyncflow.EndpointAuth{Kind: c.auth}}
		if c.auth == asyncflow.AuthBearer {
			o.Auth.Token = "t"
		}
		requireRefusal(t, o.Validate(workerURL, asyncflow.Egress{}), asyncflow.CodeInvalid, c.want)
	})
}

func TestOutboundAuth(t *testing.T) {
	type auth = asyncflow.EndpointAuth
	oauth2 := auth{Kind: "oauth2", TokenURL: "https://login.example.com/token", ClientID: "id",
		ClientSecret: "s p ü", Scopes: []string{"a", "b"}}
	with := func(change func(*auth)) auth {
		a := oauth2
		change(&a)
		return a
	}
	type when struct {
		auth auth
		want string
	}
	parallel(t, map[string]when{
		"none":      {auth: auth{}},
		"kind none": {auth: auth{Kind: "none"}},
		"bearer":    {auth: auth{Kind: "bearer", Token: "t"}},
		"basic":     {auth: auth{Kind: "basic", Username: "u", Password: "p:ü"}},
		"oauth2":    {auth: oauth2},
		"without kind": {auth{Token: "t"},
			`auth.kind is ""; it must be none, bearer, basic or oauth2`},
		"unknown kind": {auth{Kind: "digest"},
			`auth.kind is "digest"; it must be none, bearer, basic or oauth2`},
		"none with token": {auth{Kind: "none", Token: "t"},
			"auth.token doesn't belong to auth of the kind none"},
		"bearer, nothing": {auth{Kind: "bearer"},
			"auth.token is required for auth of the kind bearer"},
		"bearer, newline": {auth{Kind: "bearer", Token: "a\nb"},
			"auth.token must be printable ASCII, without a space at its begin or end"},
		"bearer, long": {auth{Kind: "bearer", Token: strings.Repeat("t", 4097)},
			"auth.token is 4097 bytes long; the limit is 4096"},
		"bearer, mask": {auth{Kind: "bearer", Token: "********"},
			"auth.token is the mask, not the value: leave auth out to keep it as it is"},
		"bearer, password": {auth{Kind: "bearer", Token: "t", Password: "p"},
			"auth.password doesn't belong to auth of the kind bearer"},
		"basic, nothing": {auth{Kind: "basic"},
			"auth.username is required for auth of the kind basic; auth.password is required for " +
				"auth of the kind basic"},
		"basic, colon": {auth{Kind: "basic", Username: "a:b", Password: "p"},
			"auth.username must not hold a colon"},
		"basic, control": {auth{Kind: "basic", Username: "a", Password: "p\x07"},
			"auth.password must not hold control characters"},
		"basic, scopes": {auth{Kind: "basic", Username: "a", Password: "p", Scopes: []string{"a"}},
			"auth.scopes doesn't belong to auth of the kind basic"},
		"oauth2, nothing": {auth{Kind: "oauth2"},
			"auth.client_id is required for auth of the kind oauth2; auth.client_secret is " +
				"required for auth of the kind oauth2" +
				"; auth.token_url is required"},
		"oauth2, http": {with(func(a *auth) { a.TokenURL = "http://login.example.com/" }),
			"auth.token_url must be https: plain http is off (the operator's --allow-http)"},
		"oauth2, user": {with(func(a *auth) { a.TokenURL = "https://me@login.example.com/" }),
			"auth.token_url must not hold a user or a password"},
		"oauth2, bad scope": {with(func(a *auth) { a.Scopes = []string{"a b"} }),
			"auth.scopes has one that is none: 1 to 255 characters of printable ASCII without " +
				"spaces, quotes and backslashes"},
		"oauth2, many scopes": {with(func(a *auth) {
			a.Scopes = strings.Split(strings.Repeat("a ", 51)[:101], " ")
		}), "auth.scopes has 51 scopes; the limit is 50"},
	}, func(t *testing.T, c when) {
		requireRefusal(t, asyncflow.Outbound{Auth: c.auth}.Validate(workerURL, asyncflow.Egress{}),
			asyncflow.CodeInvalid, c.want)
	})
}

// What is wrong with a secret is said without the secret.
func TestOutboundErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	const secret = "swordfish\n"
	for _, o := range []asyncflow.Outbound{
		{Headers: map[string]string{"X": secret, "Host": secret}},
		{Auth: asyncflow.EndpointAuth{Kind: "bearer", Token: secret, Password: secret}},
		{Auth: asyncflow.EndpointAuth{Kind: "basic", Username: "u", Password: secret,
			ClientSecret: secret}},
		{TLS: asyncflow.EndpointTLS{CA: secret, Certificate: secret, Key: secret}},
	} {
		err := o.Validate(workerURL, asyncflow.Egress{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "swordfish")
	}
}

func TestOutboundTLS(t *testing.T) {
	const noCA = "tls.ca has no certificate in PEM"
	type when struct {
		tls       asyncflow.EndpointTLS
		url, want string
	}
	parallel(t, map[string]when{
		"nothing": {},
		"http": {tls: asyncflow.EndpointTLS{CA: "x"}, url: "http://worker.example.com/",
			want: "tls is for https URLs only; " + noCA},
		"no CA": {tls: asyncflow.EndpointTLS{CA: "x"}, want: noCA},
		"too long": {tls: asyncflow.EndpointTLS{CA: strings.Repeat("x", 65537)},
			want: "tls.ca is 65537 bytes long; the limit is 65536"},
		"only the cert": {tls: asyncflow.EndpointTLS{Certificate: "x"},
			want: "tls.key is required with a certificate"},
		"only the key": {tls: asyncflow.EndpointTLS{Key: "x"},
			want: "tls.certificate is required with a key"},
		"no pair": {tls: asyncflow.EndpointTLS{Certificate: "x", Key: "y"},
			want: "tls.certificate and tls.key are no pair in PEM"},
		"mask": {tls: asyncflow.EndpointTLS{Certificate: "x", Key: asyncflow.Mask},
			want: "tls.key is the mask, not the key: leave tls out to keep it as it is"},
	}, func(t *testing.T, c when) {
		if c.url == "" {
			c.url = workerURL
		}
		requireRefusal(t, asyncflow.Outbound{TLS: c.tls}.Validate(c.url, asyncflow.Anywhere),
			asyncflow.CodeInvalid, c.want)
	})
}

func TestOutboundMaskedAndNormal(t *testing.T) {
	t.Parallel()
	o := asyncflow.Outbound{Headers: map[string]string{"x-key": "swordfish"},
		Auth: asyncflow.EndpointAuth{Kind: "oauth2", TokenURL: "https://login.example.com/",
			ClientID: "me", ClientSecret: "swordfish", Scopes: []string{"a"}},
		TLS: asyncflow.EndpointTLS{CA: "ca", Certificate: "cert", Key: "swordfish"}}
	m := o.Masked()
	require.NotContains(t, fmt.Sprint(m), "swordfish")
	require.Equal(t, asyncflow.Outbound{Headers: map[string]string{"x-key": "********"},
		Auth: asyncflow.EndpointAuth{Kind: "oauth2", TokenURL: "https://login.example.com/",
			ClientID: "me", ClientSecret: "********", Scopes: []string{"a"}},
		TLS: asyncflow.EndpointTLS{CA: "ca", Certificate: "cert", Key: "********"}}, m)
	require.Equal(t, "swordfish", o.Headers["x-key"], "the one that was masked is as before")
	require.ElementsMatch(t, []string{"swordfish", "swordfish", "swordfish"}, o.Secrets())
	require.Equal(t, "swordfish", o.Normal().Headers["X-Key"])
	require.True(t, asyncflow.Outbound{Auth: asyncflow.EndpointAuth{Kind: "none"}}.Normal().Zero())
	require.False(t, o.Zero())
	for _, other := range []asyncflow.EndpointAuth{{Kind: "bearer", Token: "swordfish"},
		{Kind: "basic", Username: "u", Password: "swordfish"}} {
		t.Run(string(other.Kind), func(t *testing.T) {
			masked := asyncflow.Outbound{Auth: other}.Masked()
			require.NotContains(t, fmt.Sprint(masked), "swordfish")
		})
	}
}
