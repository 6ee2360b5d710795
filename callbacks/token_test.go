package callbacks

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

var (
	testNow        = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	testCompletion = Completion{Tenant: "acme", Task: asyncflow.NewTaskID("thumbnails", 1, 42),
		Seq:    3,
		Expiry: testNow.Add(time.Hour), Endpoint: "e-1"}
)

// requireRefused checks that a token doesn't verify, and why.
func requireRefused(t require.TestingT, k *Keys, token string, task asyncflow.TaskID, why string) {
	c, err := k.VerifyCompletion(token, task)
	require.Error(t, err, "token %q", token)
	require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, why)
	require.Zero(t, c)
}

func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	keys, otherNode := testKeys(t, nodeSecret), testKeys(t, nodeSecret)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9_-]{0,39}`)
		want := Completion{
			Tenant: name.Draw(t, "tenant"),
			Task: asyncflow.NewTaskID(name.Draw(t, "type"),
				rapid.IntRange(1, 1<<22-1).Draw(t, "position"),
				rapid.Int64Range(1, 1<<40-1).Draw(t, "sequence")),
			Seq:    rapid.IntRange(1, 1<<15-1).Draw(t, "seq"),
			Expiry: time.Unix(rapid.Int64Range(1, 1<<33).Draw(t, "expiry"), 0),

			Endpoint: rapid.StringMatching(`([0-9a-f-]{36})?`).Draw(t, "endpoint"),
		}
		token := keys.CompletionToken(want)
		require.Regexp(t, `^afc2\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$`, token)
		got, err := otherNode.VerifyCompletion(token, want.Task)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestTokenExpires(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	token := keys.CompletionToken(testCompletion)
	c, err := keys.VerifyCompletion(token, testCompletion.Task)
	require.NoError(t, err)
	require.NoError(t, c.Expired(testCompletion.Expiry.Add(-1)))
	for _, late := range []time.Duration{0, 1, time.Hour} {
		t.Run(late.String(), func(t *testing.T) {
			err := c.Expired(testCompletion.Expiry.Add(late))
			require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
			require.ErrorContains(t, err, "expired at 2026-03-01T13:00:00Z")
		})
	}
}

func TestTokenRefused(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	token := keys.CompletionToken(testCompletion)
	parts := strings.Split(token, ".")
	claims := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	// signed signs any claims with the right key.
	signed := func(text string) string {
		head := "afc2." + claims(text)
		return head + "." + string(keys.all[0].macs.appendMAC(nil, []byte(head)))
	}
	require.Equal(t, token, signed("acme thumbnails.1.42 3 1772370000 e-1"),
		"the claims as they are documented")

	const (
		notOne   = "is not one"
		unsigned = "doesn't verify"
		unread   = "can't be read"
	)
	for name, c := range map[string]struct{ token, why string }{
		"empty": {"", notOne},
		"a JWT": {"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." +
			"dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U", notOne},
		"an unsigned JWT":  {"eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", notOne},
		"a signing secret": {testSecret, notOne},
		"with the scheme":  {"Bearer " + token, notOne},
		"leading space":    {" " + token, notOne},
		"prefix only":      {"afc2", notOne},
		"prefix and dot":   {"afc2.", unsigned},
		"another version":  {"afc3." + parts[1] + "." + parts[2], notOne},
		"upper-case":       {strings.ToUpper(token), notOne},
		"no MAC":           {parts[0] + "." + parts[1], unsigned},
		"empty MAC":        {parts[0] + "." + parts[1] + ".", unsigned},
		"MAC cut":          {token[:len(token)-1], unsigned},
		"MAC with a tail":  {token + "A", unsigned},
		"MAC with padding": {token + "=", unsigned},
		"MAC with newline": {token + "\n", unsigned},
		"no claims":        {"afc2.." + parts[2], unsigned},
		"another tenant": {"afc2." + claims("evil thumbnails.1.42 3 1772370000 e-1") + "." +
			parts[2], unsigned},
		"another seq": {"afc2." + claims("acme thumbnails.1.42 4 1772370000 e-1") + "." + parts[2],
			unsigned},
		"a later expiry": {"afc2." + claims("acme thumbnails.1.42 3 1872370000 e-1") + "." +
			parts[2], unsigned},
		"another endpoint": {"afc2." + claims("acme thumbnails.1.42 3 1772370000 e-2") + "." +
			parts[2], unsigned},

		"signed, not base64": {"afc2.*." + string(keys.all[0].macs.appendMAC(nil, []byte("afc2.*"))),
			unread},
		"signed, no claims":   {signed(""), unread},
		"signed, four claims": {signed("acme thumbnails.1.42 3 1772370000"), unread},
		"signed, six claims":  {signed("acme thumbnails.1.42 3 1772370000 e-1 1"), unread},
		"signed, two spaces":  {signed("acme  thumbnails.1.42 3 1772370000 e-1"), unread},
		"signed, no id":       {signed("acme thumbnails 3 1772370000 e-1"), unread},
		"signed, no seq":      {signed("acme thumbnails.1.42 x 1772370000 e-1"), unread},
		"signed, no expiry":   {signed("acme thumbnails.1.42 3 x e-1"), unread},
		"signed, another task's": {signed("acme thumbnails.1.43 3 1772370000 e-1"),
			"belongs to another task"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, keys, c.token, testCompletion.Task, c.why)
		})
	}
}

func TestTokenOfAnotherTask(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	token := keys.CompletionToken(testCompletion)
	for _, task := range []asyncflow.TaskID{
		{},
		asyncflow.NewTaskID("thumbnails", 1, 43),
		asyncflow.NewTaskID("thumbnails", 2, 42),
		asyncflow.NewTaskID("thumbnail", 1, 42),
	} {
		t.Run(task.String(), func(t *testing.T) {
			requireRefused(t, keys, token, task, "belongs to another task")
		})
	}
}

func TestTokenOfAnotherKey(t *testing.T) {
	t.Parallel()
	token := testKeys(t, strings.ToUpper(nodeSecret)).CompletionToken(testCompletion)
	requireRefused(t, testKeys(t, nodeSecret), token, testCompletion.Task, "doesn't verify")
}

// Only the token itself verifies: no byte of it may be changed, removed or added.
func TestTokenTampered(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	token := keys.CompletionToken(testCompletion)
	for length := range len(token) {
		requireRefused(t, keys, token[:length], testCompletion.Task, "the completion token")
	}
	for at := range len(token) {
		for _, c := range []byte(
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=\n ") {
			if c != token[at] {
				requireRefused(t, keys, token[:at]+string(c)+token[at+1:], testCompletion.Task,
					"the completion token")
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(token)).Draw(t, "at")
		added := rapid.StringN(1, 20, -1).Draw(t, "added")
		requireRefused(t, keys, token[:at]+added+token[at:], testCompletion.Task,
			"the completion token")
	})
}
