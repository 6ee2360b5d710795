package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

func TestVerifyAccepts(t *testing.T) {
	t.Parallel()
	leeway := DefaultConfig().Leeway
	for name, tc := range map[string]struct{ header, claims fields }{
		"plain":               {},
		"typ in capitals":     {header: fields{"typ": "AT+JWT"}},
		"typ as a media type": {header: fields{"typ": "application/at+jwt"}},
		"several audiences":   {claims: fields{"aud": []string{"other", "asyncflow"}}},
		"unknown scopes":      {claims: fields{"scope": "openid  submit billing read"}},
		"expired within the leeway": {claims: fields{"exp": testNow.Add(time.Second -
			leeway).Unix()}},
		"not yet valid, in the leeway": {claims: fields{"nbf": testNow.Add(leeway).Unix()}},
		"embedded key is ignored": {header: fields{"jwk": fields{"kty": "oct", "k": "AAAA"},
			"jku": "https://evil.example/keys"}},
		"kid means nothing to HS256": {header: fields{"kid": "../../dev/null"}},

		"unknown claims": {claims: fields{"Tenant": "evil", "TENANT": "evil", "groups": []int{1}}},

		"scopes in a list": {claims: fields{"scope": []string{"submit", "read", "billing"}}},
		"longest tenant":   {claims: fields{"tenant": "acme", "sub": strings.Repeat("s", 255)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newVerifier(t, secretConfig()).Verify(context.Background(),
				hs256(t, tc.header, tc.claims), testNow)
			require.NoError(t, err)
			require.Equal(t, "acme", p.Tenant)
			require.Equal(t, NewScopes(ScopeSubmit, ScopeRead), p.Scopes)
		})
	}
}

func TestVerifyRefusesClaims(t *testing.T) {
	t.Parallel()
	leeway := DefaultConfig().Leeway
	for name, tc := range map[string]struct {
		claims fields
		want   string
	}{
		"no expiry":          {fields{"exp": absent}, "no expiry"},
		"null expiry":        {fields{"exp": nil}, "no expiry"},
		"expiry as text":     {fields{"exp": "1893456000"}, "claim exp is not of the right form"},
		"expiry beyond time": {fields{"exp": 1e300}, "claim exp is not of the right form"},
		"negative expiry":    {fields{"exp": -1}, "claim exp is not of the right form"},
		"expired": {fields{"exp": testNow.Add(-leeway).Unix()},
			"the token has expired at 2026-03-01T11:59:50Z"},
		"not yet valid": {fields{"nbf": testNow.Add(leeway + time.Second).Unix()},
			"not valid before 2026-03-01T12:00:11Z"},
		"wrong issuer": {fields{"iss": "evil"}, `issuer is not "asyncflow"`},
		"no issuer":    {fields{"iss": absent}, `issuer is not "asyncflow"`},
		"empty issuer": {fields{"iss": ""}, `issuer is not "asyncflow"`},
		"issuer in capitals": {fields{"iss": absent, "ISS": "asyncflow"},
			`issuer is not "asyncflow"`},
		"wrong audience":        {fields{"aud": "other"}, `audience is not "asyncflow"`},
		"no audience":           {fields{"aud": absent}, `audience is not "asyncflow"`},
		"empty audience":        {fields{"aud": ""}, `audience is not "asyncflow"`},
		"no audience in a list": {fields{"aud": []string{}}, `audience is not "asyncflow"`},
		"audience as a number":  {fields{"aud": 7}, "claim aud is not of the right form"},
		"no tenant":             {fields{"tenant": absent}, "names no tenant"},
		"empty tenant":          {fields{"tenant": ""}, "names no tenant"},
		"null tenant":           {fields{"tenant": nil}, "names no tenant"},
		"tenant in capitals":    {fields{"tenant": absent, "Tenant": "acme"}, "names no tenant"},
		"tenant as a number":    {fields{"tenant": 7}, "claim tenant is not of the right form"},
		"tenant against rules":  {fields{"tenant": "../acme"}, "not a tenant name"},
		"tenant of two lines":   {fields{"tenant": "acme\n"}, "not a tenant name"},
		"tenant too long":       {fields{"tenant": strings.Repeat("a", 41)}, "not a tenant name"},
		"scope as numbers": {fields{"scope": []int{7}},
			"claim scope is not of the right form"},
		"scope as an object": {fields{"scope": fields{"read": true}},
			"claim scope is not of the right form"},
		"subject with NUL": {fields{"sub": "ci\x00"}, "subject"},
		"subject too long": {fields{"sub": strings.Repeat("s", 256)}, "subject"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVerifier(t, secretConfig())
			token := hs256(t, nil, tc.claims)
			for range 2 { // a failure is not cached as a success
				p, err := v.Verify(context.Background(), token, testNow)
				requireRefused(t, err, tc.want)
				require.Zero(t, p)
			}
			require.Zero(t, v.trust.Load().cache.size())
		})
	}
}

func TestVerifyRefusesHeader(t *testing.T) {
	t.Parallel()
	none := jwt.SigningMethodNone
	secret, unsafe := any(testSecret), any(jwt.UnsafeAllowNoneSignatureType)
	for name, tc := range map[string]struct {
		header fields
		method jwt.SigningMethod
		key    any
		want   string
	}{
		"alg none": {fields{"alg": "none"}, none, unsafe, "algorithm is not HS256"},
		"alg None": {fields{"alg": "None"}, none, unsafe, "algorithm is not HS256"},
		"no alg": {fields{"alg": absent}, jwt.SigningMethodHS256, secret,
			"algorithm is not HS256"},
		"alg not text": {fields{"alg": 1}, jwt.SigningMethodHS256, secret,
			"algorithm is not HS256"},
		"HS512, same secret": {fields{"alg": "HS512"}, jwt.SigningMethodHS512, secret,
			"algorithm is not HS256"},
		"HS256, no signature": {nil, none, unsafe, "signature doesn't verify"},
		"another secret": {nil, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)),
			"signature doesn't verify"},
		"wrong typ": {fields{"typ": "JWT"}, jwt.SigningMethodHS256, secret,
			`type (header typ) is not "at+jwt"`},
		"completion typ": {fields{"typ": "at+jwt2"}, jwt.SigningMethodHS256, secret,
			`type (header typ) is not "at+jwt"`},
		"no typ": {fields{"typ": absent}, jwt.SigningMethodHS256, secret,
			`type (header typ) is not "at+jwt"`},
		"typ not text": {fields{"typ": []string{"at+jwt"}}, jwt.SigningMethodHS256, secret,
			`type (header typ) is not "at+jwt"`},
		"crit": {fields{"crit": []string{"exp"}}, jwt.SigningMethodHS256, secret,
			"header crit"},
		"empty crit": {fields{"crit": nil}, jwt.SigningMethodHS256, secret, "header crit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := sign(t, tc.method, tc.key, headerWith(tc.header), claimsWith(nil))
			_, err := newVerifier(t, secretConfig()).Verify(context.Background(), token, testNow)
			requireRefused(t, err, tc.want)
		})
	}
}

func TestVerifyRefusesGarbage(t *testing.T) {
	t.Parallel()
	good := hs256(t, nil, nil)
	parts := strings.Split(good, ".")
	raw := func(header, claims string) string {
		return sign(t, jwt.SigningMethodHS256, testSecret, []byte(header), []byte(claims))
	}
	for name, tc := range map[string]struct{ token, want string }{
		"empty":            {"", "no token: send Authorization: Bearer"},
		"one word":         {"hello", "malformed"},
		"dots":             {"..", "malformed"},
		"no signature":     {parts[0] + "." + parts[1], "malformed"},
		"five parts":       {good + ".a.b", "malformed"},
		"padding":          {good + "=", "malformed"},
		"line break":       {good + "\n", "malformed"},
		"space":            {" " + good, "malformed"},
		"header no JSON":   {raw("{", "{}"), "malformed"},
		"header null":      {raw("null", "{}"), "algorithm"},
		"claims no object": {raw(string(headerWith(nil)), "[1]"), "not a JSON object"},
		"claims null":      {raw(string(headerWith(nil)), "null"), "no expiry"},
		"claims swapped": {parts[0] + "." + base64url(claimsWith(fields{"tenant": "evil"})) + "." +
			parts[2], "signature doesn't verify"},
		"another spelling": {respell(good), "malformed"},
		"signature cut":    {good[:len(good)-3], "signature doesn't verify"},
		"too long": {hs256(t, nil, fields{"pad": strings.Repeat("x", MaxTokenBytes)}),
			"longer than 8192 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newVerifier(t, secretConfig()).Verify(context.Background(), tc.token, testNow)
			requireRefused(t, err, tc.want)
		})
	}
}

// respell changes the unused bits of the last character, so that a lenient decoder reads the same
// signature.
func respell(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + string(alphabet[strings.IndexByte(alphabet, token[last])^1])
}

// A message goes to the sender of the token, and into logs.
func TestRefusalQuotesNothingOfTheToken(t *testing.T) {
	t.Parallel()
	const mark = "sn00p"
	v := newVerifier(t, secretConfig())
	for _, token := range []string{
		mark,
		hs256(t, fields{"typ": mark}, nil),
		hs256(t, fields{"alg": mark}, nil),
		hs256(t, fields{"crit": mark}, nil),
		hs256(t, nil, fields{"iss": mark}),
		hs256(t, nil, fields{"aud": mark}),
		hs256(t, nil, fields{"exp": mark}),
		hs256(t, nil, fields{"tenant": mark + "/"}),
	} {
		_, err := v.Verify(context.Background(), token, testNow)
		requireRefused(t, err, "")
		require.NotContains(t, err.Error(), mark)
		require.NotContains(t, err.Error(), string(testSecret))
	}
}
