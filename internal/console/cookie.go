package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
)

// sessionCookie holds the sealed token of a session. A browser accepts the prefix __Host- only on a
// cookie that is Secure, with Path=/ and without a domain, so that no other host can set it. On
// this machine (localhost and 127.0.0.1) browsers accept such a cookie by plain http too.
const sessionCookie = "__Host-asyncflow_session"

// loggedOut is the value of the session's cookie after a logout where a console is open to requests
// without a session.
const loggedOut = "out"

const (
	// maxCookie is the longest cookie that every browser keeps, with its name and attributes, in
	// bytes (RFC 6265, section 6.1).
	maxCookie = 4096
	// cookieAttributes is room for the attributes of a cookie.
	cookieAttributes = 64

	// MaxToken bounds the token of a session, in bytes: base64 of its seal must fit into a cookie.
	MaxToken = (maxCookie-cookieAttributes-len(sessionCookie)-1)/4*3 - sealOverhead
)

// checkSize refuses a token that no session can hold.
func checkSize(token string) error {
	if len(token) <= MaxToken {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeTooLarge, Fields: []asyncflow.FieldError{{
		Field: "token", Message: tooLong(len(token))}}}
}

// setSession starts a session that ends with its token. A token may be expired already, within the
// leeway of clocks. If the console is open to requests without a session, the cookie outlives its
// token: without it, the next request would get the open console's token.
func (c *Console) setSession(ctx *fiber.Ctx, token string, expires time.Time) {
	life := max(expires.Sub(c.now()), time.Second)
	if c.cfg.Open != "" {
		life = 0
	}
	setCookie(ctx, sessionCookie, c.seals.seal(token, useSession), life)
}

// clearSession ends a session. If the console is open to requests without a session, the cookie
// stays, to say that the user logged out; it goes when the browser is closed.
func (c *Console) clearSession(ctx *fiber.Ctx) {
	if c.cfg.Open != "" {
		setCookie(ctx, sessionCookie, loggedOut, 0)
		return
	}
	setCookie(ctx, sessionCookie, "", -1)
}

// setCookie sets a cookie for a time; 0: until the browser is closed; below 0: deletes it.
//
// SameSite=Lax, since Strict breaks the return from an issuer's login page: that is a navigation
// from another site, and the browser would not send the cookies that the return needs. It is no
// loss, since checkOrigin looks at each request.
func setCookie(ctx *fiber.Ctx, name, value string, life time.Duration) {
	cookie := &fiber.Cookie{Name: name, Value: value, Path: "/", Secure: true, HTTPOnly: true,
		SameSite: fiber.CookieSameSiteLaxMode}
	switch {
	case life < 0:
		cookie.Expires = time.Unix(1, 0)
	case life > 0:
		cookie.MaxAge = int(life / time.Second)
	}
	ctx.Cookie(cookie)
}

// seals encrypt what a cookie holds (AES-256-GCM, a random nonce each). Their keys are derived from
// the node's secrets (HKDF-SHA-256, RFC 5869): the first seals, and each of them opens.
type seals []cipher.AEAD

// use is what a cookie is for. A cookie for one use can't be opened for another.
type use string

const (
	useSession use = "session"
	useLogin   use = "login"
)

// sealOverhead is what a seal adds to its content, in bytes: a nonce and a tag.
const sealOverhead = 12 + 16

func newSeals(secret []byte, old [][]byte) (seals, error) {
	var all seals
	for _, s := range slices.Concat([][]byte{secret}, old) {
		key, err := hkdf.Key(sha256.New, s, nil, "asyncflow console cookie v1", 32)
		if err != nil {
			return nil, fmt.Errorf("derive the console's key: %w", err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		one, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// seal returns a text as the value of a cookie.
func (s seals) seal(text string, purpose use) string {
	return cookieText.EncodeToString(s[0].Seal(nil, nil, []byte(text), []byte(purpose)))
}

// open returns the text that seal got. ok is false if no secret of this node sealed it for that
// use.
func (s seals) open(value string, purpose use) (text string, ok bool) {
	sealed, err := cookieText.DecodeString(value)
	if err != nil {
		return "", false
	}
	for _, one := range s {
		if text, err := one.Open(nil, nil, sealed, []byte(purpose)); err == nil {
			return string(text), true
		}
	}
	return "", false
}

// cookieText writes bytes in the characters that are allowed in a cookie. There is one spelling of
// a value.
var cookieText = base64.RawURLEncoding.Strict()
