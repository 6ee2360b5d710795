package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// Token returns the token of the session that a request without Authorization belongs to; "" if
// there is none. An error is CodeForbidden for a request from elsewhere or for a page of another
// caller's session, and CodeUnauthenticated for a cookie that can't be opened. The token itself may
// not be verified yet.
func (c *Console) Token(ctx *fiber.Ctx) (string, error) {
	switch value := ctx.Cookies(sessionCookie); value {
	case "":
		if c.cfg.Open != "" && ownMachine(ctx) && checkOrigin(&ctx.Request().Header) == nil {
			return c.cfg.Open, nil
		}
		return "", nil
	case loggedOut:
		return "", nil
	default:
		if err := checkOrigin(&ctx.Request().Header); err != nil {
			return "", err
		}
		token, ok := c.seals.open(value, useSession)
		if !ok {
			return "", asyncflow.Errorf(asyncflow.CodeUnauthenticated,
				"the session can't be opened: "+
					"its cookie was changed, or sealed with a secret that this node doesn't know; "+
					"log in again")
		}
		return token, c.checkCaller(ctx, token)
	}
}

// callerHeader names the caller that a page takes for its session's: another tab may have logged in
// as another one.
const callerHeader = "Asyncflow-Session"

// checkCaller refuses a call of a page that was loaded in somebody else's session.
func (c *Console) checkCaller(ctx *fiber.Ctx, token string) error {
	want := ctx.Get(callerHeader)
	if want == "" {
		return nil
	}
	p, err := c.verify(ctx, token)
	if err == nil && callerID(p) != want {
		return asyncflow.Errorf(asyncflow.CodeForbidden,
			"another login has taken the place of this page's session: load the page again")
	}
	return err
}

// callerID names a caller to its pages.
func callerID(p auth.Principal) string {
	sum := sha256.Sum256([]byte(string(p.Kind) + "\x00" + p.Tenant + "\x00" + p.Subject))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// verifyTime bounds the check of a token, which may wait for its issuer's keys.
const verifyTime = 15 * time.Second

// verify returns the caller that a token names.
func (c *Console) verify(ctx *fiber.Ctx, token string) (auth.Principal, error) {
	limited, cancel := context.WithTimeout(ctx.UserContext(), verifyTime)
	defer cancel()
	return c.cfg.Verifier.Verify(limited, token, c.now())
}

// session is what a page may know of its session. No secret is in it.
type session struct {
	LoggedIn  bool         `json:"logged_in"`
	ID        string       `json:"id,omitempty"`   // of the caller; see callerHeader
	Kind      auth.Kind    `json:"kind,omitempty"` // tenant or operator
	Tenant    string       `json:"tenant,omitempty"`
	Subject   string       `json:"subject,omitempty"`
	Scopes    []auth.Scope `json:"scopes"`
	ExpiresAt *time.Time   `json:"expires_at,omitempty"`
	Instance  instance     `json:"instance"`
	Version   string       `json:"version"`
	Dev       bool         `json:"dev"` // requests of this machine need no login
	Login     logins       `json:"login"`
	TraceURL  string       `json:"trace_url,omitempty"` // with TraceID for the id; only for callers
}

type instance struct {
	Name  string `json:"name"`
	Color string `json:"color"`
}

// logins are the ways to log in.
type logins struct {
	Token bool `json:"token"`
	OIDC  bool `json:"oidc"`
}

// showSession answers with the session of a request, also if there is none or it is over.
func (c *Console) showSession(ctx *fiber.Ctx) error {
	token, err := c.Token(ctx)
	if asyncflow.CodeOf(err) == asyncflow.CodeForbidden {
		return err
	}
	var p auth.Principal
	if err == nil && token != "" {
		p, err = c.verify(ctx, token)
		if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable { // it may be a good one
			return err
		}
	}
	return ctx.JSON(c.sessionOf(p))
}

// sessionOf describes the session of a verified caller; there is none of the zero Principal.
func (c *Console) sessionOf(p auth.Principal) session {
	s := session{
		Scopes:   []auth.Scope{},
		Instance: instance(c.cfg.Instance),
		Version:  c.cfg.Version,
		Dev:      c.cfg.Open != "",
		Login:    logins{Token: true, OIDC: c.issuer != nil},
	}
	if p.Kind != "" {
		s.LoggedIn, s.ID, s.Kind, s.Tenant, s.Subject = true, callerID(p), p.Kind, p.Tenant,
			p.Subject
		s.Scopes = append(s.Scopes, p.Scopes.List()...)
		s.ExpiresAt = &p.ExpiresAt
		s.TraceURL = c.cfg.TraceURL
	}
	return s
}

// login starts a session with the token in Authorization, and answers with the session. It takes no
// body, so that none is read from strangers.
func (c *Console) login(ctx *fiber.Ctx) error {
	if err := checkOrigin(&ctx.Request().Header); err != nil {
		return err
	}
	if ctx.Request().Header.ContentLength() != 0 {
		return asyncflow.InvalidField("body", "must be empty: the token goes into Authorization")
	}
	token, err := auth.Bearer(ctx.Get(fiber.HeaderAuthorization))
	if err != nil {
		return err
	}
	p, err := c.start(ctx, token)
	if err != nil {
		return err
	}
	return ctx.JSON(c.sessionOf(p))
}

// start verifies a token and starts its session.
func (c *Console) start(ctx *fiber.Ctx, token string) (auth.Principal, error) {
	p, err := c.verify(ctx, token)
	if err != nil {
		return p, err
	}
	if err := checkSize(token); err != nil {
		return p, err
	}
	c.setSession(ctx, token, p.ExpiresAt)
	return p, nil
}

// tooLong says that a token fits into no cookie.
func tooLong(size int) string {
	return fmt.Sprintf("is %d bytes; the limit of a session is %d, since browsers keep cookies of "+
		"up to %d bytes: use a token with fewer claims", size, MaxToken, maxCookie)
}

// logout ends a session. The token itself stays valid until it expires.
func (c *Console) logout(ctx *fiber.Ctx) error {
	if err := checkOrigin(&ctx.Request().Header); err != nil {
		return err
	}
	c.clearSession(ctx)
	return ctx.SendStatus(fiber.StatusNoContent)
}

// checkOrigin refuses a request of a page that isn't this server's own. It decides as
// http.CrossOriginProtection does, with two differences: a request of any method may be refused,
// and so is one that shows no origin at all. A browser with the cookie also sends Sec-Fetch-Site:
// it sends both only to https and to this machine.
func checkOrigin(h *fasthttp.RequestHeader) error {
	refuse := func(why string, args ...any) error {
		return asyncflow.Errorf(asyncflow.CodeForbidden,
			"a session counts only in requests of the "+
				"console's own pages: "+why, args...)
	}
	switch site := string(h.Peek("Sec-Fetch-Site")); site {
	case "same-origin", "none":
		return nil
	case "":
	default:
		return refuse("this one comes from elsewhere (Sec-Fetch-Site: %.20s)", site)
	}
	origin := string(h.Peek(fiber.HeaderOrigin))
	if origin == "" {
		return refuse("this one has neither Sec-Fetch-Site nor Origin; a program sends " +
			"Authorization")
	}
	if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Host != string(h.Host()) {
		return refuse("this one comes from elsewhere (its Origin isn't this host)")
	}
	return nil
}

// proxyHeaders are what proxies add to a request, beside X-Forwarded-*.
var proxyHeaders = []string{"forwarded", "via", "x-real-ip"}

// ownMachine reports whether a request comes from this machine and names it so. The name matters:
// a name elsewhere may lead here (DNS rebinding), and the browser then takes the page from there
// for one of ours. A proxy on this machine may bring requests from elsewhere, under any name;
// requests that say so, even by an empty header, don't count.
func ownMachine(ctx *fiber.Ctx) bool {
	peer, ok := netip.AddrFromSlice(ctx.Context().RemoteIP())
	if !ok || !peer.Unmap().IsLoopback() {
		return false
	}
	for name := range ctx.Request().Header.All() {
		name := strings.ToLower(string(name))
		if strings.HasPrefix(name, "x-forwarded-") || slices.Contains(proxyHeaders, name) {
			return false
		}
	}
	host := string(ctx.Request().Header.Host())
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch strings.ToLower(host) {
	case "localhost", "127.0.0.1", "::1", "[::1]":
		return true
	}
	return false
}
