package callbacks

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

var testLink = Link{Tenant: "acme", Task: asyncflow.NewTaskID("orders", 1, 42), Seq: 3,
	Stage: "review", Decision: "approve", Expiry: testNow.Add(time.Hour).In(time.Local)}

// A link fits into a line of a mail, and ends with a character that nothing cuts off.
func TestLinkRoundTrip(t *testing.T) {
	t.Parallel()
	keys, otherNode := testKeys(t, nodeSecret), testKeys(t, nodeSecret)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9_-]{0,39}`)
		want := Link{
			Tenant: name.Draw(t, "tenant"),
			Task: asyncflow.NewTaskID(name.Draw(t, "type"),
				rapid.IntRange(1, asyncflow.MaxPosition).Draw(t, "position"),
				rapid.Int64Range(1, 1<<40-1).Draw(t, "sequence")),
			Seq:      rapid.IntRange(1, 1<<15-1).Draw(t, "seq"),
			Stage:    name.Draw(t, "stage"),
			Decision: name.Draw(t, "decision"),
			Expiry:   time.Unix(rapid.Int64Range(1, 1<<33).Draw(t, "expiry"), 0),
		}
		token := keys.LinkToken(want)
		require.Regexp(t, `^afl1\.[A-Za-z0-9_-]{43}(\.[a-z0-9_-]+){8}$`, token)
		require.Regexp(t, `[0-9]$`, token)
		got, ok := otherNode.VerifyLink(token)
		require.True(t, ok)
		require.Equal(t, want, got)
	})
	long := strings.Repeat("x", asyncflow.MaxNameLength)
	token := keys.LinkToken(Link{Tenant: long,
		Task: asyncflow.NewTaskID(long, asyncflow.MaxPosition, 1<<40-1), Seq: 1<<15 - 1,
		Stage: long, Decision: long, Expiry: time.Unix(1<<33, 0)})
	require.LessOrEqual(t, len(token), maxLinkToken)
	_, ok := keys.VerifyLink(token)
	require.True(t, ok)
}

func TestLinkRefused(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	token := keys.LinkToken(testLink)
	_, ok := keys.VerifyLink(token)
	require.True(t, ok)
	for i := range token { // every byte counts
		changed := []byte(token)
		changed[i] ^= 1
		_, ok := keys.VerifyLink(string(changed))
		require.False(t, ok, string(changed))
	}
	signed := func(claims string) string {
		mac := keys.all[0].links.appendMAC(nil, []byte("afl1."+claims))
		return "afl1." + string(mac) + "." + claims
	}
	claims := token[len("afl1.")+43+1:]
	require.Equal(t, token, signed(claims))
	for _, forged := range []string{
		"", "afl1", "afl1.", "afl1..", claims, token + ".", token + "0", " " + token,
		token[:len(token)-1], strings.ToUpper(token), strings.Replace(token, "afl1", "afl2", 1),
		signed(""), signed("acme"), signed(claims + ".1"), signed("acme.orders.x.42.3.review.ok.1"),
		signed("acme.orders.1.42.x.review.ok.1"), signed("acme.orders.1.42.3.review.ok.x"),
		signed(strings.Repeat("x", maxLinkToken)),
		keys.CompletionToken(testCompletion), testKeys(t, "another secret, of 32 bytes or more").
			LinkToken(testLink),
	} {
		l, ok := keys.VerifyLink(forged)
		require.False(t, ok, forged)
		require.Zero(t, l, forged)
	}
}

// A link is no completion token, and verifies while the secret is being changed.
func TestLinkKeys(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	_, err := keys.Verify(keys.LinkToken(testLink))
	require.Error(t, err)
	const next = "the next secret, of 32 bytes or more"
	rotated, err := NewKeys([]byte(next), []byte(nodeSecret))
	require.NoError(t, err)
	_, ok := rotated.VerifyLink(keys.LinkToken(testLink))
	require.True(t, ok)
	_, ok = keys.VerifyLink(rotated.LinkToken(testLink))
	require.False(t, ok, "it is signed with the new secret")
}

func TestEnvelopeWithLinks(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, nodeSecret)
	s := NewSender(Config{PublicURL: "https://tasks.example.com"}, keys)
	d := testDelivery(`{}`)
	d.Links = []asyncflow.WaitLinks{
		{Stage: "review", Decisions: []string{"approve", "reject"}, Timeout: time.Hour},
		{Stage: "legal", Decisions: []string{"ok"}, Timeout: 24 * time.Hour}}
	read := func() (links map[string]map[string]string) {
		var doc struct{ Links map[string]map[string]string }
		require.NoError(t, json.Unmarshal(s.AppendDelivery(nil, &d), &doc))
		return doc.Links
	}
	links := read()
	require.Len(t, links, 2)
	require.Len(t, links["review"], 2)
	for stage, of := range links {
		for decision, url := range of {
			token, ok := strings.CutPrefix(url, "https://tasks.example.com/l/")
			require.True(t, ok)
			l, ok := keys.VerifyLink(token)
			require.True(t, ok)
			require.Equal(t, []any{d.Tenant, d.Lease.ID, d.Lease.Seq, stage, decision},
				[]any{l.Tenant, l.Task, l.Seq, l.Stage, l.Decision})
			require.True(t, l.Expiry.After(d.Deadline.Add(time.Hour)))
		}
	}
	s2 := s.body([]asyncflow.Delivery{d})
	require.Less(t, cap(s2), len(s2)+4<<10, "the body is made without growing")

	d.Test = true
	require.Equal(t, "https://tasks.example.com/l/test", read()["review"]["approve"])
	d.Test = false
	d.Lease.Options.Child = &asyncflow.Child{Parent: 1, Count: 2}
	require.Empty(t, read(), "children get none: they don't come to the wait")
	d.Lease.Options.Child, d.Links = nil, nil
	require.NotContains(t, string(s.AppendDelivery(nil, &d)), "links")
}
