package callbacks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Completion is what a completion token vouches for: one attempt of one task.
type Completion struct {
	Tenant   string
	Task     asyncflow.TaskID
	Seq      int
	Expiry   time.Time // in whole seconds
	Endpoint string    // id of the endpoint that got the delivery; may be empty
	Claimer  string    // who claimed the delivery, instead of an endpoint; may be empty
}

// tokenPrefix distinguishes completion tokens from other credentials, and names their version.
const tokenPrefix = "afc2"

// CompletionToken returns a token: "afc2.<claims>.<MAC>". The claims are "tenant task seq expiry
// endpoint", with "@claimer" in place of an endpoint, and the MAC is HMAC-SHA-256 over prefix and
// claims; both are in base64url.
func (k *Keys) CompletionToken(c Completion) string {
	return string(k.appendCompletionToken(make([]byte, 0, 2*tokenBytes), c))
}

// appendCompletionToken appends the token.
func (k *Keys) appendCompletionToken(b []byte, c Completion) []byte {
	claims := append(append(make([]byte, 0, tokenBytes), c.Tenant...), ' ')
	claims = append(c.Task.Append(claims), ' ')
	claims = append(strconv.AppendInt(claims, int64(c.Seq), 10), ' ')
	claims = append(strconv.AppendInt(claims, c.Expiry.Unix(), 10), ' ')
	if c.Claimer != "" {
		claims = append(claims, '@')
	}
	claims = append(append(claims, c.Endpoint...), c.Claimer...)
	start := len(b)
	b = base64.RawURLEncoding.AppendEncode(append(b, tokenPrefix+"."...), claims)
	return k.all[0].macs.appendMAC(append(b, '.'), b[start:])
}

// tokenBytes is the usual size of a token's claims, as a capacity.
const tokenBytes = 128

// appendMAC appends the MAC in base64. The texts are compared, not the bytes: base64 knows several
// spellings of the same bytes, and only this one is valid.
func (k macs) appendMAC(b, signed []byte) []byte {
	m := k.pool.Get().(*mac) // making one costs as much as using it
	defer k.pool.Put(m)
	m.Reset()
	m.Write(signed)
	return base64.RawURLEncoding.AppendEncode(b, m.Sum(m.sum[:0]))
}

// mac is a MAC with a buffer for its sum.
type mac struct {
	hash.Hash
	sum [sha256.Size]byte
}

// IsCompletionToken reports whether a token looks like one of a delivery. No other kind begins with
// its prefix.
func IsCompletionToken(token string) bool { return strings.HasPrefix(token, tokenPrefix+".") }

// VerifyCompletion is Verify for a token that must be for this task; any other is
// CodeUnauthenticated.
func (k *Keys) VerifyCompletion(token string, task asyncflow.TaskID) (Completion, error) {
	c, err := k.Verify(token)
	if err == nil && c.Task != task {
		return refuseToken("belongs to another task")
	}
	return c, err
}

func refuseToken(why string) (Completion, error) {
	return Completion{}, asyncflow.Errorf(asyncflow.CodeUnauthenticated, "the completion token %s",
		why)
}

// Verify returns the claims of a token if we signed it; otherwise the error is
// CodeUnauthenticated. It doesn't check the expiry (see Expired): a token stays valid while its
// attempt goes on.
func (k *Keys) Verify(token string) (Completion, error) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 || !IsCompletionToken(token) {
		return refuseToken("is not one: " +
			"send the delivery's callback.token as Authorization: Bearer …")
	}
	if !slices.ContainsFunc(k.all, func(one key) bool {
		return hmac.Equal([]byte(token[i+1:]), one.macs.appendMAC(nil, []byte(token[:i])))
	}) {
		return refuseToken("doesn't verify")
	}
	c, ok := parseClaims(token[len(tokenPrefix)+1 : i])
	if !ok {
		return refuseToken("can't be read")
	}
	return c, nil
}

// Expired returns CodeUnauthenticated if the token is expired at now, a time of the database's
// clock.
func (c Completion) Expired(now time.Time) error {
	if now.Before(c.Expiry) {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeUnauthenticated, "the completion token expired at %s",
		c.Expiry.UTC().Format(time.RFC3339))
}

func parseClaims(encoded string) (Completion, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	f := strings.Split(string(raw), " ")
	if err != nil || len(f) != 5 {
		return Completion{}, false
	}
	task, err1 := asyncflow.ParseTaskID(f[1])
	seq, err2 := strconv.Atoi(f[2])
	expiry, err3 := strconv.ParseInt(f[3], 10, 64)
	c := Completion{Tenant: f[0], Task: task, Seq: seq, Expiry: time.Unix(expiry, 0),
		Endpoint: f[4]}
	if claimer, ok := strings.CutPrefix(c.Endpoint, "@"); ok {
		c.Endpoint, c.Claimer = "", claimer
	}
	return c, err1 == nil && err2 == nil && err3 == nil
}
