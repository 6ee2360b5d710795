package asyncflow_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestErrorPattern(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "",
		"  out\n\tof   memory  ": "out of memory",
		"503 Service Unavailable: upstream is down":         "# Service Unavailable: upstream is down",
		"order 4711 has 3 items":                            "order # has # items",
		"is -5, not +7":                                     "is #, not #",
		"took 1.5s of 300ms and 1m30.25s":                   "took # of # and #",
		"10MB are more than 4KiB":                           "# are more than #",
		"50% of 12":                                         "#% of #",
		"at 2026-11-21T10:00:00Z":                           "at #",
		"at 2026-11-21T10:00:00.123456+01:00":               "at #",
		"at 10:43:32.1, again":                              "at #, again",
		"task thumbnails.1.42 is gone":                      "task thumbnails.# is gone",
		"id 550e8400-e29b-41d4-a716-446655440000.":          "id #.",
		"id abcdabcd-abcd-abcd-abcd-abcdabcdabcd":           "id #",
		"commit deadbeefdeadbeefdeadbeef":                   "commit #",
		"commit 1deadbee":                                   "commit #",
		"pod worker-7f9c: killed":                           "pod worker-#: killed",
		"pod worker-a1b2: killed":                           "pod worker-#: killed",
		"ref aZ9kQ02x":                                      "ref #",
		"x509: unknown authority":                           "x#: unknown authority",
		"0x7ffee4 is no address":                            "# is no address",
		`no user "anna"`:                                    "no user …",
		`no user 'anna' in "x y"`:                           "no user … in …",
		"no `column`":                                       "no …",
		"I can't, and don't":                                "I can't, and don't",
		`an "open one`:                                      `an "open one`,
		`Post "https://a.example.com/x?y=1": EOF`:           "Post …: EOF",
		"GET https://a.example.com:8443/x/17 failed":        "GET @ failed",
		"no mail for anna@example.com":                      "no mail for @",
		"dial tcp 10.0.0.7:8443: connection refused":        "dial tcp @: connection refused",
		"dial tcp [fe80::1]:443: no route":                  "dial tcp [#]:#: no route",
		"dial tcp a.prod.internal:443: refused":             "dial tcp @: refused",
		"main.go:33: index out of range [5]":                "main.go:#: index out of range [#]",
		"/var/lib/x/7f9c/a.json is missing":                 "/var/lib/x/#/a.json is missing",
		`500: {"code":17,"error":"no such user"}`:           `#: {"code":#,"error":"no such user"}`,
		"größer als 17 Stück":                               "größer als # Stück",
		"expired: it had not begun by 2026-11-21T10:00:00Z": "expired: it had not begun by #",
		"of 12 children, 3 failed and 0 were cancelled":     "of # children, # failed and # were cancelled",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, want, asyncflow.ErrorPattern(text))
		})
	}
}

// Errors that share no more than numbers are of other kinds, and so are other codes.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	same := asyncflow.Fingerprint("503", asyncflow.ErrorPattern("order 1 is gone"))
	assert.True(t, asyncflow.IsFingerprint(same), same)
	assert.Equal(t, same, asyncflow.Fingerprint("503", asyncflow.ErrorPattern("order 27 is gone")))
	assert.NotEqual(t, same, asyncflow.Fingerprint("503", asyncflow.ErrorPattern("order 1 is bad")))
	assert.NotEqual(t, same,
		asyncflow.Fingerprint("504", asyncflow.ErrorPattern("order 1 is gone")))
	for _, text := range []string{"", "xyz", same + "0", strings.ToUpper("abcdefabcdefabcd")} {
		assert.False(t, asyncflow.IsFingerprint(text), text)
	}
}

// Long errors of one kind share one pattern, though the lengths of their numbers differ.
func TestErrorPatternOfLongErrors(t *testing.T) {
	t.Parallel()
	long := func(number string) string {
		return strings.Repeat("item "+number+" is wrong; ", 400)
	}
	assert.Equal(t, asyncflow.ErrorPattern(long("1")), asyncflow.ErrorPattern(long("12345678")))
	quoted := func(n int) string { return `no user "` + strings.Repeat("x", n) + `" today` }
	assert.Equal(t, asyncflow.ErrorPattern(quoted(2000)), asyncflow.ErrorPattern(quoted(9000)))
}

// The time for a hostile error of 10 MB doesn't grow with it.
func TestErrorPatternOfHostileErrors(t *testing.T) {
	t.Parallel()
	for _, part := range []string{` 'a`, `"`, ` "`, `{"`, "1a", "a-", "://", "@", ":", "…", "\x00",
		"\xff", "((((", "aaaa", "{{", " `a'\"", "1.", "[::"} {
		pattern := asyncflow.ErrorPattern(strings.Repeat(part, 10<<20/len(part)))
		assert.LessOrEqual(t, len(pattern), asyncflow.MaxPattern, part)
		short := strings.Repeat(part, asyncflow.FingerprintText/len(part)+1)
		assert.Equal(t, asyncflow.ErrorPattern(short), pattern, "%q: more of it was read", part)
	}
}

// A pattern is bounded, is text, and is without numbers outside of words.
func FuzzErrorPattern(f *testing.F) {
	f.Add("order 17 has 'x'", "18")
	f.Add(`500: {"a":1}`, "0")
	f.Fuzz(func(t *testing.T, text, more string) {
		pattern := asyncflow.ErrorPattern(text)
		require.LessOrEqual(t, len(pattern), asyncflow.MaxPattern)
		require.Equal(t, pattern, strings.TrimSpace(pattern))
		if utf8.ValidString(text) {
			require.True(t, utf8.ValidString(pattern), "%q", pattern)
		}
		if len(text) < asyncflow.FingerprintText-10 {
			require.Equal(t, asyncflow.ErrorPattern("a 17 "+text),
				asyncflow.ErrorPattern("a 4711 "+text))
		}
		require.NotContains(t, strings.Fields(asyncflow.ErrorPattern("a 17 "+text)), "17")
		require.LessOrEqual(t, len(asyncflow.ErrorPattern(text+more)), asyncflow.MaxPattern)
	})
}
