package auth

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// secretNamed returns a different secret for each name.
func secretNamed(name string) []byte { return bytes.Repeat([]byte(name+"."), MinSecretBytes) }

// secretFile writes a file of secrets, and returns a config that reads it.
func secretFile(t testing.TB, secrets ...[]byte) (cfg Config, write func(secrets ...[]byte)) {
	t.Helper()
	cfg = DefaultConfig()
	cfg.HMACSecretFile = filepath.Join(t.TempDir(), "secrets")
	write = func(secrets ...[]byte) {
		require.NoError(t, os.WriteFile(cfg.HMACSecretFile,
			append(bytes.Join(secrets, []byte("\n")), '\n'), 0o600))
	}
	write(secrets...)
	return cfg, write
}

// A secret is replaced with an overlap: meanwhile no token is refused. When the old secret is gone
// its tokens are refused, even tokens that were verified before.
func TestSecretRotation(t *testing.T) {
	t.Parallel()
	old, next := secretNamed("old"), secretNamed("next")
	cfg, write := secretFile(t, old)
	v := newVerifier(t, cfg)
	source := v.trust.Load().issuers[0].source
	reload := func() { require.NoError(t, source.load(t.Context())) }
	issue := func() string {
		token, err := newIssuer(t, cfg).Issue("acme", "ci", []Scope{ScopeRead}, time.Hour, testNow)
		require.NoError(t, err)
		return token
	}
	before := issue()
	require.NoError(t, verify(v, before))

	write(old, next)
	ofNext := sign(t, jwt.SigningMethodHS256, next, headerWith(nil), claimsWith(nil))
	requireRefused(t, verify(v, ofNext), "signature doesn't verify")
	reload()
	require.NoError(t, verify(v, ofNext))
	require.NoError(t, verify(v, before))
	require.NoError(t, verify(v, issue()), "the first one signs, still the old one")
	require.Equal(t, []string{"secrets: 2"}, v.trust.Load().issuers[0].keyNames(),
		"nothing else about them is shown")

	write(next, old)
	reload()
	after := issue()
	require.NoError(t, verify(v, after))
	require.NoError(t, verify(v, before))

	write(next)
	reload()
	require.NoError(t, verify(v, after))
	require.NoError(t, verify(v, ofNext))
	requireRefused(t, verify(v, before), "signature doesn't verify")
}

// The contents of a file of secrets. A bad file is refused at the start and ignored later.
func TestSecretFile(t *testing.T) {
	t.Parallel()
	good := secretNamed("good")
	many := make([][]byte, maxSecrets+1)
	for i := range many {
		many[i] = secretNamed(strconv.Itoa(i))
	}
	for name, tc := range map[string]struct{ text, want string }{
		"several, as editors leave them": {"\r\n" + string(good) + "  \r\n\n" +
			string(secretNamed("b")),
			""},
		"as many as may be": {string(bytes.Join(many[1:], []byte("\n"))), ""},

		"too many": {string(bytes.Join(many, []byte("\n"))), "holds 11 secrets; the limit is 10"},

		"empty": {"", "holds no secret"},
		"blank": {" \n\n", "holds no secret"},

		"a short one": {string(good) + "\n\nhunter2\n",
			"line 3 must have at least 32 bytes, not 7"},

		"one twice":   {string(good) + "\n" + string(good), "line 2 is there already"},
		"public keys": {string(newEd25519(t, nil).public), "holds a PEM block"},
		"huge":        {strings.Repeat("x", maxKeysBytes+1), "has more than 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, write := secretFile(t, []byte(tc.text))
			_, err := NewVerifier(cfg)
			_, signErr := NewIssuer(cfg)
			if tc.want == "" {
				require.NoError(t, err)
				require.NoError(t, signErr)
				return
			}
			for _, err := range []error{err, signErr} {
				requireCode(t, err, asyncflow.CodeInvalid, "HMACSecretFile can't be used: ")
				require.ErrorContains(t, err, tc.want)
				require.NotContains(t, err.Error(), "hunter2")
			}
			write(good)
			v := newVerifier(t, cfg)
			write([]byte(tc.text))
			require.ErrorContains(t, v.trust.Load().issuers[0].source.load(t.Context()), tc.want)
			require.Equal(t, map[string]bool{"asyncflow": true}, v.Stale())
			require.NoError(t, verify(v, sign(t, jwt.SigningMethodHS256, good, headerWith(nil),
				claimsWith(nil))))
			write(good)
			require.NoError(t, v.trust.Load().issuers[0].source.load(t.Context()))
			require.Equal(t, map[string]bool{"asyncflow": false}, v.Stale())
		})
	}
}

func TestSecretFileIsOneFamily(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"keys are of one family":      func(c *Config) { c.PublicKeysFile = "keys.pem" },
		"holds them all":              func(c *Config) { c.HMACSecret = testSecret },
		"the key is a secret":         func(c *Config) { c.Algorithm = "RS256" },
		"no such file":                func(c *Config) { c.HMACSecretFile += "x" },
		"Interval must be between 1s": func(c *Config) { c.Interval = 1 },
	} {
		t.Run(want, func(t *testing.T) {
			cfg, _ := secretFile(t, testSecret)
			change(&cfg)
			_, err := NewVerifier(cfg)
			requireCode(t, err, asyncflow.CodeInvalid, want)
		})
	}
}
